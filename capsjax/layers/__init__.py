"""Flax NNX modules: parameters around one routing call."""

from capsjax.layers.attention import AttentionConvCapsules, AttentionFullCapsules, CapsuleActivation
from capsjax.layers.backbones import (
    ConvNorm,
    ResidualBlock,
    ResNetBackbone,
    SimpleBackbone,
    batch_norm,
)
from capsjax.layers.capsules import ConvCapsules, DenseCapsules
from capsjax.layers.convolution import conv2d, convolve
from capsjax.layers.decoder import ConvDecoder, Decoder, reconstruct
from capsjax.layers.dropout import dropout
from capsjax.layers.em import EMClassCapsules, EMRouting, coordinate_addition
from capsjax.layers.inverted_attention import (
    ActivatedInvertedAttention,
    InvertedAttention,
    InvertedAttentionStack,
    inverted_attention_init,
)
from capsjax.layers.primary import PrimaryCapsules
from capsjax.layers.self_attention import DepthwiseCapsules, SelfAttentionRouting
from capsjax.layers.slots import SlotAttention
from capsjax.layers.transforms import unit_sums, unit_votes

__all__ = [
    "ActivatedInvertedAttention",
    "AttentionConvCapsules",
    "AttentionFullCapsules",
    "CapsuleActivation",
    "ConvCapsules",
    "ConvDecoder",
    "ConvNorm",
    "Decoder",
    "DenseCapsules",
    "DepthwiseCapsules",
    "EMClassCapsules",
    "EMRouting",
    "InvertedAttention",
    "InvertedAttentionStack",
    "PrimaryCapsules",
    "ResNetBackbone",
    "ResidualBlock",
    "SelfAttentionRouting",
    "SimpleBackbone",
    "SlotAttention",
    "batch_norm",
    "conv2d",
    "convolve",
    "coordinate_addition",
    "dropout",
    "inverted_attention_init",
    "reconstruct",
    "unit_sums",
    "unit_votes",
]
