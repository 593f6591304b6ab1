"""Convolutional networks below the capsules."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.convolution import conv2d

_he_conv2d = partial(conv2d, kernel_init=nnx.initializers.he_normal())


def batch_norm(features: int, *, rngs: nnx.Rngs, **options: Any) -> nnx.BatchNorm:
    """Makes a batch normalisation in the common type of input and parameters."""
    options = {"momentum": 0.9} | options  # running statistics decay by this factor per step
    return nnx.BatchNorm(features, promote_dtype=_as_they_are, rngs=rngs, **options)


def _as_they_are(arrays: Any, /, *, dtype: Any = None, inexact: bool = True) -> Any:
    return arrays  # Flax would make all of them float32, as the statistics are


class SimpleBackbone(nnx.Module):
    """One 3×3 convolution with stride 2, and ReLU (Tsai et al. 2020, table 8)."""

    def __init__(self, in_features: int, out_features: int, *, rngs: nnx.Rngs):
        self.out_features = out_features
        self.conv = _he_conv2d(in_features, out_features, 3, strides=2, padding=1, rngs=rngs)

    def __call__(self, images: Float[Array, "n h w c"]) -> Float[Array, "n h_half w_half f"]:
        return nnx.relu(self.conv(images))


class ConvNorm(nnx.Module):
    """A convolution without bias, with `padding` zeros on each side, and batch normalisation."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int,
        *,
        strides: int = 1,
        padding: int = 0,
        rngs: nnx.Rngs,
    ):
        convolution = partial(_he_conv2d, strides=strides, padding=padding, use_bias=False)
        self.conv = convolution(in_features, out_features, kernel_size, rngs=rngs)
        self.norm = batch_norm(out_features, rngs=rngs)

    def __call__(self, x: Float[Array, "n h w c"]) -> Float[Array, "n h_out w_out f"]:
        return self.norm(self.conv(x))


class ResidualBlock(nnx.Module):
    """Two 3×3 convolutions, the first with `strides`, beside a shortcut (He et al. 2016).

    The shortcut is the identity, or a 1×1 convolution where the shape changes.
    """

    def __init__(self, in_features: int, out_features: int, strides: int, *, rngs: nnx.Rngs):
        self.first = ConvNorm(in_features, out_features, 3, strides=strides, padding=1, rngs=rngs)
        self.second = ConvNorm(out_features, out_features, 3, padding=1, rngs=rngs)
        self.shortcut = nnx.data(None)
        if strides > 1 or in_features != out_features:
            self.shortcut = ConvNorm(in_features, out_features, 1, strides=strides, rngs=rngs)

    def __call__(self, x: Float[Array, "n h w c"]) -> Float[Array, "n h_out w_out f"]:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return nnx.relu(self.second(nnx.relu(self.first(x))) + shortcut)


class ResNetBackbone(nnx.Module):
    """A 3×3 convolution, then `stages` of residual blocks, each (features, blocks, stride).

    Tsai et al. 2020, appendix A.1: stages (64, 3, 1) and (128, 4, 2), 1,340,224 parameters. The
    ResNet-18 for CIFAR has (64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2). Strides are those of
    first blocks; the 3×3 convolution has the features of the first stage.
    """

    def __init__(self, in_features: int, stages: Sequence[tuple[int, int, int]], *, rngs: nnx.Rngs):
        features = stages[0][0]
        self.stem = ConvNorm(in_features, features, 3, padding=1, rngs=rngs)
        blocks = []
        for out_features, num_blocks, strides in stages:
            for stride in (strides, *[1] * (num_blocks - 1)):
                blocks.append(ResidualBlock(features, out_features, stride, rngs=rngs))
                features = out_features
        self.blocks = nnx.List(blocks)
        self.out_features = features

    def __call__(self, images: Float[Array, "n h w c"]) -> Float[Array, "n h_out w_out f"]:
        x = nnx.relu(self.stem(images))
        for block in self.blocks:
            x = block(x)
        return x
