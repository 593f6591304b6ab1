"""Semantic compactness: over how many units a factor of variation is spread (Gu et al. 2021)."""

import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32

# The amounts are not published. These are affNIST's ranges, and translations that leave nearly
# all ink of MNIST's digits on 28×28.
AMOUNTS: dict[str, Float[np.ndarray, "9"]] = {
    "rotation": np.linspace(-20, 20, 9),
    "x": np.linspace(-4, 4, 9),
    "y": np.linspace(-4, 4, 9),
    "scale": np.linspace(0.8, 1.2, 9),
    "shear_x": np.linspace(-0.2, 0.2, 9),
    "shear_y": np.linspace(-0.2, 0.2, 9),
}


def semantic_compactness(poses: Float[Array | np.ndarray, "*batch k d"]) -> Float[Array, "*batch"]:
    """Computes KL(Var_n ‖ uniform), in nats (Gu et al. 2021, section 3.3 and table 5).

    Var_n is the variance of each of the d units over the k versions of an image, divided by the
    sum over the units. One number per image: log d where one unit alone varies, 0 where all vary
    alike, NaN where none does. Table 5 has the mean over the test set, for each factor:

      semantic_compactness(moved_poses(model, images, labels, "x", AMOUNTS["x"])).mean()
    """
    return _divergence(_normalized_variance(poses))


def compactness_of_mean(poses: Float[Array | np.ndarray, "n k d"]) -> Float[Array, ""]:
    """Computes KL(mean of Var_n over the images ‖ uniform), in nats: averaged first, then compared.

    0 where the images move along different units, however compact each one is. The numbers of Gu
    et al.'s table 5 are of this size, and too small for the mean of `semantic_compactness`, which
    is far larger even for a few random versions. Images whose pose does not vary are left out.
    """
    return _divergence(jnp.nanmean(_normalized_variance(poses), axis=0))


def _normalized_variance(poses: Array | np.ndarray) -> Array:
    variance = jnp.var(at_least_float32(jnp.asarray(poses)), axis=-2)
    return variance / jnp.sum(variance, axis=-1, keepdims=True)


def _divergence(share: Array) -> Array:
    return jnp.log(share.shape[-1]) - jnp.sum(jax.scipy.special.entr(share), axis=-1)
