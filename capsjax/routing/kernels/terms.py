"""What routing asks of votes v_ij = P_i W_ij, as formulas that hold no vote.

Everything that routing asks of votes is a derivative of one of three scalars, where e = PW − μ:

  U = Σ_ij <P_i W_ij, q_j>   E = Σ_ij c_ij <P_i W_ij, q_j>   Q = Σ_ij c_ij <w_j, e_ij ∘ e_ij>

and every gradient of routing is a derivative of these, or of

  G = Σ_ij c_ij <w_j, e_ij ∘ P'_i W'_ij>

Each derivative is a sum, over all but a few axes, of terms that are cheap to write out: products of
small matrices whose entries are whole arrays. What those arrays are is each platform's own choice;
the formulas are the same for all of them.

Operands, by their letters: c [*batch, I, J]; p and P (P') [*batch, I, A, X]; k and K, the weights
W and W' [I, X, J, Y]; q, w and m (μ) [*batch, J, A, Y]; t [*batch, J].
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

AXES = {"c": "ij", "p": "iax", "P": "iax", "k": "ixjy", "K": "ixjy"}
AXES |= dict.fromkeys("qwm", "jay") | {"t": "j"}
POSES = "pP"
WEIGHTS = "kK"  # without batch axes
OPERANDS = {"U": "pkq", "E": "cpkq", "Q": "cwpkm", "G": "cwpkmPK"}
LINEAR = {"U": "pkq", "E": "cpkq", "Q": "cw", "G": "cwPK"}

Operands = dict[str, Any]
# A small matrix as a NumPy array of objects: its entries are arrays over (…, I, J), or some of it.
# NumPy multiplies and adds such matrices by multiplying and adding their entries.
Matrix = np.ndarray
Terms = Iterable[tuple[str, Matrix]]  # what is to be summed, by letter of the result


def operands_of(scalar: str, wrt: str) -> list[str]:
    """Returns the operands of the derivative of `scalar` by `wrt`, in their order."""
    return [letter for letter in OPERANDS[scalar] if letter != wrt]


class Sizes(NamedTuple):
    """The extents of a problem."""

    batch: tuple[int, ...]
    children: int  # I
    parents: int  # J
    rows: int  # A, of a pose and of a vote
    columns: int  # X, of a pose
    width: int  # Y, columns of a vote

    @property
    def positions(self) -> int:
        """N, the batch axes taken together."""
        return math.prod(self.batch)

    @property
    def products(self) -> int:
        """A·X·Y, the multiplications in one pose product."""
        return self.rows * self.columns * self.width


def sizes_of(operands: Operands) -> Sizes:
    """Returns the extents, from the shapes of operands; raises ValueError for unlike batch axes."""
    extents: dict[str, int] = {}
    batches: set[tuple[int, ...]] = set()
    for letter, x in operands.items():
        axes = AXES[letter]
        extents |= zip(axes, x.shape[len(x.shape) - len(axes) :], strict=True)
        if letter not in WEIGHTS:
            batches.add(tuple(x.shape[: len(x.shape) - len(axes)]))
    if len(batches) != 1:
        raise ValueError(f"poses, couplings and votes must share batch axes, got {batches}")
    (batch,) = batches
    return Sizes(batch, *(extents[axis] for axis in "ijaxy"))


def shape_of(letter: str, sizes: Sizes) -> tuple[int, ...]:
    """Returns the shape of an operand, without batch axes."""
    extents = dict(zip("ijaxy", sizes[1:], strict=True))
    return tuple(extents[axis] for axis in AXES[letter])


def matrix_shape(letter: str, sizes: Sizes) -> tuple[int, ...]:
    """Rows and columns of the small matrices of an operand: 1×1 for c and t."""
    extents = dict(zip("axy", sizes[3:], strict=True))
    return tuple(extents[axis] for axis in AXES[letter] if axis in extents) or (1, 1)


def matrix(entries: Sequence[Array], columns: int = 1) -> Matrix:
    """Returns the small matrix with these entries, row by row."""
    flat = np.empty(len(entries), object)
    for number, entry in enumerate(entries):
        flat[number] = entry
    return flat.reshape(-1, columns)


def dot(left: Matrix, right: Matrix) -> Array:
    """Returns the scalar product of two matrices."""
    return functools.reduce(operator.add, (left * right).flat)


# The terms of each derivative as a matrix, before the sum over the axes that the result lacks.
# An operand is a matrix too: a pose, weights, or a vote for q, w and m; c is 1×1.
TERMS: Mapping[tuple[str, str], Callable[..., Matrix]] = {
    ("E", "c"): lambda p, k, q: matrix([dot(p @ k, q)]),
    ("E", "q"): lambda c, p, k: c * (p @ k),
    ("E", "p"): lambda c, k, q: c * (q @ k.T),
    ("E", "k"): lambda c, p, q: c * (p.T @ q),
    ("Q", "c"): lambda w, p, k, m: matrix([dot(w, np.square(p @ k - m))]),
    ("Q", "w"): lambda c, p, k, m: c * np.square(p @ k - m),
    ("G", "P"): lambda c, w, p, k, m, K: c * ((w * (p @ k - m)) @ K.T),
    ("G", "K"): lambda c, w, p, k, m, P: c * (P.T @ (w * (p @ k - m))),
}
