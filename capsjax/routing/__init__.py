"""Routing procedures: pure functions from votes to parent poses.

An argument of a wrong type raises TypeError, one of a wrong shape or value ValueError, as soon as a
program is traced; the message names it and says what was expected.
"""

from capsjax.routing.attention import attention_routing
from capsjax.routing.blocking import blocked_vmap, choose_block_size, in_blocks, over_devices
from capsjax.routing.dynamic import dynamic_routing, uniform_routing
from capsjax.routing.em import em_routing, published_inverse_temperature, softmax_over_parents
from capsjax.routing.inverted_attention import inverted_attention_routing
from capsjax.routing.patches import WindowVotes, pose_patches, softmax_over_windows
from capsjax.routing.routed import Routed, coupling_entropy
from capsjax.routing.schedules import FixedPoint, concurrent, fixed_point, sequential
from capsjax.routing.self_attention import self_attention_routing
from capsjax.routing.slots import slot_attention
from capsjax.routing.votes import DenseVotes, LinearVotes, Votes

__all__ = [
    "DenseVotes",
    "FixedPoint",
    "LinearVotes",
    "Routed",
    "Votes",
    "WindowVotes",
    "attention_routing",
    "blocked_vmap",
    "choose_block_size",
    "concurrent",
    "coupling_entropy",
    "dynamic_routing",
    "em_routing",
    "fixed_point",
    "in_blocks",
    "inverted_attention_routing",
    "over_devices",
    "pose_patches",
    "published_inverse_temperature",
    "self_attention_routing",
    "sequential",
    "slot_attention",
    "softmax_over_parents",
    "softmax_over_windows",
    "uniform_routing",
]
