"""Flax NNX modules: parameters around one routing call."""

from capsjax.layers.conv import ConvCapsules
from capsjax.layers.convolution import conv2d, convolve
from capsjax.layers.decoder import Decoder
from capsjax.layers.dense import DenseCapsules
from capsjax.layers.primary import PrimaryCapsules

__all__ = [
    "ConvCapsules",
    "Decoder",
    "DenseCapsules",
    "PrimaryCapsules",
    "conv2d",
    "convolve",
]
