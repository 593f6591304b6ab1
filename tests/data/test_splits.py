import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capsjax.data.splits import stratified_holdout


@given(
    labels=arrays(np.int64, st.integers(0, 60), elements=st.integers(0, 4)),
    fraction=st.floats(0, 0.99),
    seed=st.integers(0, 2**32),
)
def test_parts_are_sorted_disjoint_and_proportional(labels, fraction, seed):
    kept, held_out = stratified_holdout(labels, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([kept, held_out])), np.arange(labels.size))
    assert np.all(np.diff(kept) > 0)
    assert np.all(np.diff(held_out) > 0)
    for label in np.unique(labels):
        n, count = np.sum(labels == label), np.sum(labels[held_out] == label)
        if fraction == 0 or n == 1:
            assert count == 0
        else:
            assert 1 <= count <= n - 1
            assert abs(count - fraction * n) <= 1


def test_same_split_everywhere():
    # The digest was computed once: a change would change every user's test set.
    kept, held_out = stratified_holdout(np.arange(1000) % 7, 0.2, seed=0)
    assert (kept.size, held_out.size) == (798, 202)
    digest = hashlib.sha256(held_out.astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("8e91153637d467ce")
