"""Small problems for kernels, and what the formulas say of them in NumPy's float64."""

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


def attention(p, k, q, g):
    """Sums, couplings, and the gradients of Σ g·s by P, W and q, all child by child."""
    sums, to_p, to_k, to_q = map(np.zeros_like, (q, p, k, q))
    coupling = np.zeros((*p.shape[:-2], q.shape[-3]))
    for n in np.ndindex(p.shape[:-3]):
        for i in range(p.shape[-3]):
            votes = np.einsum("ax,xjy->jay", p[n][i], k[i])
            logits = np.einsum("jay,jay->j", votes, q[n])
            r = np.exp(logits - logits.max())
            r /= r.sum()
            coupling[n][i] = r
            sums[n] += r[:, None, None] * votes
            gain = np.einsum("jay,jay->j", votes, g[n])
            t = r * (gain - np.sum(r * gain))
            to_votes = r[:, None, None] * g[n] + t[:, None, None] * q[n]
            to_q[n] += t[:, None, None] * votes
            to_p[n][i] += np.einsum("jay,xjy->ax", to_votes, k[i])
            to_k[i] += np.einsum("jay,ax->xjy", to_votes, p[n][i])
    return sums, coupling, to_p, to_k, to_q


def moments(c, p, k):
    """Sums, squares about the mean, and total, child by child; and the means."""
    votes = np.einsum("...iax,ixjy->...ijay", p, k)
    total = c.sum(-2)
    sums = np.einsum("...ij,...ijay->...jay", c, votes)
    means = sums / total[..., None, None]
    squares = np.zeros_like(sums)
    for i in range(p.shape[-3]):
        squares += c[..., i, :, None, None] * (votes[..., i, :, :, :] - means) ** 2
    return (sums, squares, total), means


def cluster_gradients(c, p, k, m, q, w):
    """The gradients of Σ_ij c_ij (<v_ij, q_j> + <w_j, (v_ij − μ_j)²>) by c, P, W, μ and w."""
    votes = np.einsum("...iax,ixjy->...ijay", p, k)
    error = votes - m[..., None, :, :, :]
    q, w = q[..., None, :, :, :], w[..., None, :, :, :]
    to_votes = c[..., None, None] * (q + 2 * w * error)
    return {
        "c": np.sum(q * votes + w * error**2, axis=(-2, -1)),
        "p": np.einsum("...ijay,ixjy->...iax", to_votes, k),
        "k": np.einsum(
            "nijay,niax->ixjy", *(x.reshape(-1, *x.shape[-n:]) for x, n in ((to_votes, 4), (p, 3)))
        ),
        "m": np.sum(-2 * c[..., None, None] * w * error, axis=-4),
        "w": np.sum(c[..., None, None] * error**2, axis=-4),
    }
