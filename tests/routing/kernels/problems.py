"""Small problems for kernels, and what the formulas say of them: exact in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from capsjax.routing.kernels.terms import AXES, LINEAR, WEIGHTS, Sizes, shape_of


def problem(sizes: Sizes) -> dict[str, np.ndarray]:
    """An operand for every letter."""
    rng = np.random.default_rng(0)
    operands = {}
    for letter in AXES:
        lead = () if letter in WEIGHTS else sizes.batch
        operands[letter] = rng.normal(size=(*lead, *shape_of(letter, sizes)))
    operands["w"] = np.abs(operands["w"])
    for letter in WEIGHTS:
        operands[letter] /= np.sqrt(sizes.columns)
    return operands


def derivative(scalar: str, wrt: str, operands: dict[str, np.ndarray]) -> np.ndarray:
    """The derivative with all votes written out."""
    subscripts = {a: axes if a in WEIGHTS else "..." + axes for a, axes in AXES.items()}
    factors = [(subscripts[a], operands[a]) for a in LINEAR[scalar] if a != wrt]
    if scalar in "QG":
        error = np.einsum("...iax,ixjy->...ijay", operands["p"], operands["k"])
        error -= operands["m"][..., None, :, :, :]
        factors += [("...ijay", error)] * (2 if scalar == "Q" else 1)
    spec = ",".join(axes for axes, _ in factors) + "->" + subscripts[wrt]
    return np.einsum(spec, *(x for _, x in factors), optimize=True)


def attend(p, k, q):
    """Sums of votes and couplings, with all votes in memory."""
    votes = jnp.einsum("...iax,ixjy->...ijay", p, k)
    coupling = jax.nn.softmax(jnp.einsum("...ijay,...jay->...ij", votes, q), axis=-1)
    return jnp.einsum("...ij,...ijay->...jay", coupling, votes), coupling


def distance(p, k, m, w):
    """Σ w (v − μ)², likewise."""
    errors = jnp.einsum("...iax,ixjy->...ijay", p, k) - m[..., None, :, :, :]
    return jnp.einsum("...ijay,...jay->...ij", errors**2, w)


def moments(c, p, k):
    """Sums, squares about the mean and total, likewise."""
    votes = jnp.einsum("...iax,ixjy->...ijay", p, k)
    sums, total = jnp.einsum("...ij,...ijay->...jay", c, votes), jnp.sum(c, axis=-2)
    means = sums / total[..., None, None]
    errors = votes - means[..., None, :, :, :]
    return sums, jnp.einsum("...ij,...ijay->...jay", c, errors**2), total
