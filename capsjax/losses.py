"""Losses of one example; use `jax.vmap` for a batch.

Margin and spread loss take presences in [0, 1], such as the lengths of squashed capsules. The
cross-entropies take logits; `length_logits` computes logits from lengths.
"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32, check_array


def margin_loss(
    lengths: Float[Array, "classes"],
    label: Float[Array, "classes"],
    *,
    m_plus: float = 0.9,
    m_minus: float = 0.1,
    down_weight: float = 0.5,
) -> Float[Array, ""]:
    """Σ_k T_k max(0, m⁺ − |p_k|)² + λ (1 − T_k) max(0, |p_k| − m⁻)²   (Sabour et al. 2017, eq. 4).

    `lengths` are |p_k|, `label` is T_k: 1 for every class that is present, else 0; `m_plus` and
    `m_minus` are m⁺ and m⁻, `down_weight` is λ.
    """
    lengths, label = _of_one_example(lengths, label)
    present = jnp.square(jnp.maximum(0, m_plus - lengths))
    absent = jnp.square(jnp.maximum(0, lengths - m_minus))
    return jnp.sum(label * present + down_weight * (1 - label) * absent)


def spread_loss(
    presences: Float[Array, "classes"], label: Float[Array, "classes"], *, margin: float = 0.9
) -> Float[Array, ""]:
    """Σ_{k≠t} max(0, m − (a_t − a_k))²   (Hinton et al. 2018, spread loss).

    With several present classes t, the sum over all pairs of a present and an absent class.
    `presences` are a_k in [0, 1]; the paper raises the `margin` m from 0.2 to 0.9 in training.
    """
    presences, label = _of_one_example(presences, label)
    short = jnp.maximum(0, margin - (presences[:, None] - presences[None, :]))
    return jnp.sum(label[:, None] * (1 - label) * jnp.square(short))


def cross_entropy(
    logits: Float[Array, "classes"], label: Float[Array, "classes"]
) -> Float[Array, ""]:
    """Returns −Σ_k T_k log softmax(logits)_k, T_k = 1 for every class that is present, else 0."""
    return optax.safe_softmax_cross_entropy(*_of_one_example(logits, label))


def sigmoid_cross_entropy(
    logits: Float[Array, "classes"], label: Float[Array, "classes"]
) -> Float[Array, ""]:
    """Returns −Σ_k [T_k log σ(logit_k) + (1 − T_k) log(1 − σ(logit_k))]: each class separately."""
    logits, label = _of_one_example(logits, label)
    present, absent = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    return -jnp.sum(_times_log(label, present) + _times_log(1 - label, absent))


def length_logits(
    lengths: Float[Array, "*batch classes"], *, scale: float = 10.0
) -> Float[Array, "*batch classes"]:
    """Returns lengths of capsules as logits: scale · (|p_k| − ½).

    Gu et al. 2021 train capsules with cross-entropy and do not say how. An affine map is smooth at
    length 0 and, unlike log(|p| / (1 − |p|)), is defined for lengths above 1 (without squash). A
    `scale` of 10 takes the margin loss's lengths 0.1 and 0.9 to ±4, a probability of 0.98; with a
    scale of 1, the cross-entropy of ten squashed lengths could not fall below 1.46.
    """
    return scale * (at_least_float32(lengths) - 0.5)


def reconstruction_loss(
    reconstruction: Float[Array, "*targets h w c"], image: Float[Array, "*targets h w c"]
) -> Float[Array, ""]:
    """Returns the sum of squared differences of the pixels (Sabour et al. 2017, section 4.1)."""
    check_array("image", image)
    if jnp.issubdtype(image.dtype, jnp.integer):
        raise TypeError(f"image must be floats in [0, 1], got {image.dtype}: divide it by 255")
    reconstruction, image = at_least_float32(reconstruction), at_least_float32(image)
    if reconstruction.shape != image.shape:
        raise ValueError(
            f"the reconstruction has shape {reconstruction.shape}, its image {image.shape}"
        )
    return jnp.sum(jnp.square(reconstruction - image))


def _times_log(weight: Array, log: Array) -> Array:
    """Returns `weight` · `log`, with 0 · log 0 = 0."""
    return weight * jnp.where((weight == 0) & jnp.isneginf(log), 0, log)


def _of_one_example(scores: Array, label: Array) -> tuple[Array, Array]:
    """Returns both in at least float32; raises ValueError for a batch or a class number."""
    scores, label = at_least_float32(scores), at_least_float32(label)
    if scores.ndim != 1 or scores.shape != label.shape:
        raise ValueError(
            "a loss takes scores and label [classes] of one example, got shapes "
            f"{scores.shape} and {label.shape}: see jax.nn.one_hot and jax.vmap"
        )
    return scores, label
