"""Splitting a labelled set in two, the same way on every machine."""

import numpy as np
from jaxtyping import Int, UInt64

TEST_FRACTION = 0.2
TEST_SEED = 0


def with_test_split(
    labels: Int[np.ndarray, "n"], seed: int | UInt64[np.ndarray, "n"] = TEST_SEED
) -> dict[str, Int[np.ndarray, "split"]]:
    """Returns the indices of "train" and "test", a fixed stratified fifth, for sets without one."""
    train, test = stratified_holdout(labels, TEST_FRACTION, seed)
    return {"train": train, "test": test}


def stratified_holdout(
    labels: Int[np.ndarray, "n"], fraction: float, seed: int | UInt64[np.ndarray, "n"]
) -> tuple[Int[np.ndarray, "kept"], Int[np.ndarray, "held_out"]]:
    """Splits indices so that each class gives the same `fraction` of its examples, in [0, 1).

    Counts are rounded, but unless `fraction` is 0 a class of two or more is in both parts. A class
    of one is kept. The same seed gives the same split everywhere. In place of a seed, `seed` can be
    a random word for each example: those with the smallest words of each class are held out.

    Returns:
      The kept and the held-out indices, each ascending; together they are 0 … n − 1.
    """
    # Raw PCG64 words are promised never to change between NumPy versions, shuffles are not.
    random = np.random.PCG64(seed).random_raw(labels.size) if isinstance(seed, int) else seed
    held_out = np.zeros(labels.size, dtype=bool)
    if fraction > 0:
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            # With one member the bounds cross, and `clip` returns the upper: none is held out.
            count = int(np.clip(np.floor(fraction * members.size + 0.5), 1, members.size - 1))
            held_out[members[np.argsort(random[members], kind="stable")[:count]]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
