"""Reconstructing an image from class poses."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import check_array, mask_poses
from capsjax.layers.rngs import check_rngs
from capsjax.layers.transforms import check_poses
from capsjax.routing._checks import check_counts


class Decoder(nnx.Module):
    """Dense layers from class poses to an image in [0, 1].

    Sabour et al. 2017, figure 2: 512 and 1024 units with ReLU, then a sigmoid per pixel.

    Args:
      num_classes: number of class poses.
      pose_size: D, their size.
      image_shape: height, width, channels.
      features: sizes of the hidden layers.
    """

    def __init__(
        self,
        num_classes: int,
        pose_size: int,
        image_shape: tuple[int, int, int],
        *,
        features: Sequence[int] = (512, 1024),
        rngs: nnx.Rngs,
    ):
        check_rngs(rngs)
        check_counts(
            num_classes=num_classes,
            pose_size=pose_size,
            image_shape=image_shape,
            features=features,
        )
        check_image_shape(image_shape)
        self.num_classes = num_classes
        self.pose_size = pose_size
        self.image_shape = image_shape
        sizes = [num_classes * pose_size, *features, math.prod(image_shape)]
        self.layers = nnx.List([nnx.Linear(n, m, rngs=rngs) for n, m in pairwise(sizes)])

    def __call__(
        self,
        poses: Float[Array, "n classes d"],
        mask: Float[Array, "n *targets classes"] | None = None,
    ) -> Float[Array, "n *targets h w c"]:
        """Reconstructs the objects of the classes in `mask` ("conditional" in Gu et al. 2021).

        Args:
          poses: of all classes.
          mask: 1 for the classes to be seen, else 0. With several masks for an image, one for
            each of two overlapping digits, there are as many reconstructions. None: the poses of
            all classes are seen ("normal").
        """
        check_poses(poses, num_classes=self.num_classes, pose_size=self.pose_size)
        x = masked_poses(poses, mask)
        targets = x.shape[:-1]
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        pixels = nnx.sigmoid(self.layers[-1](x))
        return pixels.reshape(*targets, *self.image_shape)


def check_image_shape(image_shape: tuple[int, ...]) -> None:
    """Raises a ValueError unless it is height, width and channels."""
    if len(image_shape) != 3:
        raise ValueError(f"image_shape must be (height, width, channels), got {image_shape}")


def masked_poses(
    poses: Float[Array, "n classes d"], mask: Float[Array, "n *targets classes"] | None
) -> Float[Array, "n *targets seen"]:
    """What a decoder sees of `poses`, all of them without a mask; see `Decoder`."""
    if mask is None:
        mask = jnp.ones(poses.shape[:-1], poses.dtype)
    check_array("mask", mask)
    for _ in range(mask.ndim - 2):
        poses = poses[:, None]
    return mask_poses(poses, mask)


def reconstruct(
    decoder: Callable[..., Float[Array, "n *targets h w c"]] | None,
    poses: Float[Array, "n classes d"],
    scores: Float[Array, "n classes"],
    mask: Float[Array, "n *targets classes"] | None,
    *,
    conditional: bool,
) -> Float[Array, "n ... h w c"] | None:
    """The reconstruction in each of the settings of Gu et al. 2021.

    Args:
      decoder: None for no reconstruction.
      poses: of all classes.
      scores: of the classes; the highest one's class is the predicted one.
      mask: the classes that are seen; None for the predicted one.
      conditional: whether to look at the mask; otherwise all classes are seen.
    """
    if decoder is None:
        return None
    if not conditional:
        return decoder(poses)
    if mask is None:
        mask = jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])
    return decoder(poses, mask)
