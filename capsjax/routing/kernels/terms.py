"""What routing asks of votes v_ij = P_i W_ij, as formulas that hold no vote.

Everything that routing asks of votes is a derivative of one of two scalars, where e = PW − μ:

  E = Σ_ij c_ij <P_i W_ij, q_j>       Q = Σ_ij c_ij <w_j, e_ij ∘ e_ij>

and every gradient of routing is a derivative of E, Q, or

  G = Σ_ij c_ij <w_j, e_ij ∘ P'_i W'_ij>

Each derivative is a sum, over all but a few axes, of terms that are cheap to write out: the small
matrix products are unrolled to multiplications and additions of whole arrays. What those arrays
are is each platform's own choice; the formulas are the same for all of them.

Operands, by their letters: c [*batch, I, J]; p and P (P') [*batch, I, A, X]; k and K, the weights
W and W' [I, X, J, Y]; q, w and m (μ) [*batch, J, A, Y]; t [*batch, J].
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Array

AXES = {"c": "ij", "p": "iax", "P": "iax", "k": "ixjy", "K": "ixjy"}
AXES |= dict.fromkeys("qwm", "jay") | {"t": "j"}
POSES = "pP"
WEIGHTS = "kK"  # without batch axes
OPERANDS = {"E": "cpkq", "Q": "cwpkm", "G": "cwpkmPK"}
LINEAR = {"E": "cpkq", "Q": "cw", "G": "cwPK"}

Operands = dict[str, Any]
Grid = list[
    list[Array]
]  # the entries of small matrices, each an array over (…, I, J) or some of it


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


def sizes_of(letters: Sequence[str], arrays: Sequence[Any]) -> Sizes:
    """Returns the extents, from the shapes of operands."""
    extents: dict[str, int] = {}
    batch: tuple[int, ...] = ()
    for letter, x in zip(letters, arrays, strict=True):
        axes = AXES[letter]
        extents |= zip(axes, x.shape[len(x.shape) - len(axes) :], strict=True)
        if letter not in WEIGHTS:
            batch = tuple(x.shape[: len(x.shape) - len(axes)])
    return Sizes(batch, *(extents[axis] for axis in "ijaxy"))


def shape_of(letter: str, sizes: Sizes) -> tuple[int, ...]:
    """Returns the shape of an operand, without batch axes."""
    extents = dict(zip("ijaxy", sizes[1:], strict=True))
    return tuple(extents[axis] for axis in AXES[letter])


def matrix_shape(letter: str, sizes: Sizes) -> tuple[int, int]:
    """Rows and columns of the small matrices of an operand: 1×1 for c and t."""
    rows, columns, width = sizes[3:]
    return {
        "ij": (1, 1),
        "j": (1, 1),
        "iax": (rows, columns),
        "ixjy": (columns, width),
        "jay": (rows, width),
    }[AXES[letter]]


# The terms of each derivative as a grid of arrays, before the sum over the axes that the result
# lacks. An operand is a grid too: of pose entries, of weights, of vote entries for q, w, m.
TERMS: Mapping[tuple[str, str], Callable[..., Grid]] = {
    ("E", "c"): lambda p, k, q: [[dot(product(p, k), q)]],
    ("E", "q"): lambda c, p, k: scale(c, product(p, k)),
    ("E", "p"): lambda c, k, q: scale(c, product(q, transposed(k))),
    ("E", "k"): lambda c, p, q: scale(c, product(transposed(p), q)),
    ("Q", "c"): lambda w, p, k, m: [[dot(w, squared(residual(p, k, m)))]],
    ("Q", "w"): lambda c, p, k, m: scale(c, squared(residual(p, k, m))),
    ("G", "P"): lambda c, w, p, k, m, K: scale(
        c, product(times(w, residual(p, k, m)), transposed(K))
    ),
    ("G", "K"): lambda c, w, p, k, m, P: scale(
        c, product(transposed(P), times(w, residual(p, k, m)))
    ),
}


def dot(left: Grid, right: Grid) -> Array:
    """Returns the scalar product of two matrices."""
    return functools.reduce(operator.add, itertools.chain(*times(left, right)))


def product(left: Grid, right: Grid) -> Grid:
    """Returns the matrix product."""
    return [[dot([row], [list(column)]) for column in zip(*right, strict=True)] for row in left]


def transposed(grid: Grid) -> Grid:
    """Returns the transpose."""
    return [list(column) for column in zip(*grid, strict=True)]


def times(left: Grid, right: Grid) -> Grid:
    """Returns the product entry by entry."""
    return [[x * y for x, y in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def plus(left: Grid, right: Grid) -> Grid:
    """Returns the sum."""
    return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def minus(left: Grid, right: Grid) -> Grid:
    """Returns the difference."""
    return [[x - y for x, y in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def scale(coupling: Grid, grid: Grid) -> Grid:
    """Returns every entry times the one entry of `coupling`."""
    return [[coupling[0][0] * x for x in row] for row in grid]


def squared(grid: Grid) -> Grid:
    """Returns every entry squared."""
    return times(grid, grid)


def residual(poses: Grid, weights: Grid, means: Grid) -> Grid:
    """Returns e = PW − μ."""
    return minus(product(poses, weights), means)


def flat(grid: Grid) -> list[Array]:
    """Returns the entries, row by row."""
    return list(itertools.chain(*grid))


def grid(entries: Sequence[Array], columns: int) -> Grid:
    """Inverts `flat`."""
    return [list(entries[at : at + columns]) for at in range(0, len(entries), columns)]
