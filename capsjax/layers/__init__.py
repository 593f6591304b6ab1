"""Flax NNX modules: parameters around one routing call."""

from capsjax.layers.attention import AttentionConvCapsules as AttentionConvCapsules
from capsjax.layers.attention import AttentionFullCapsules as AttentionFullCapsules
from capsjax.layers.attention import CapsuleActivation as CapsuleActivation
from capsjax.layers.backbones import ConvNorm as ConvNorm
from capsjax.layers.backbones import ResidualBlock as ResidualBlock
from capsjax.layers.backbones import ResNetBackbone as ResNetBackbone
from capsjax.layers.backbones import SimpleBackbone as SimpleBackbone
from capsjax.layers.backbones import batch_norm as batch_norm
from capsjax.layers.capsules import ConvCapsules as ConvCapsules
from capsjax.layers.capsules import DenseCapsules as DenseCapsules
from capsjax.layers.convolution import conv2d as conv2d
from capsjax.layers.convolution import convolve as convolve
from capsjax.layers.decoder import ConvDecoder as ConvDecoder
from capsjax.layers.decoder import Decoder as Decoder
from capsjax.layers.dropout import dropout as dropout
from capsjax.layers.em import EMClassCapsules as EMClassCapsules
from capsjax.layers.em import EMRouting as EMRouting
from capsjax.layers.em import coordinate_addition as coordinate_addition
from capsjax.layers.inverted_attention import (
    ActivatedInvertedAttention as ActivatedInvertedAttention,
)
from capsjax.layers.inverted_attention import InvertedAttention as InvertedAttention
from capsjax.layers.inverted_attention import InvertedAttentionStack as InvertedAttentionStack
from capsjax.layers.inverted_attention import inverted_attention_init as inverted_attention_init
from capsjax.layers.primary import PrimaryCapsules as PrimaryCapsules
from capsjax.layers.self_attention import DepthwiseCapsules as DepthwiseCapsules
from capsjax.layers.self_attention import SelfAttentionRouting as SelfAttentionRouting
from capsjax.layers.slots import SlotAttention as SlotAttention
from capsjax.layers.transforms import unit_sums as unit_sums
from capsjax.layers.transforms import unit_votes as unit_votes
