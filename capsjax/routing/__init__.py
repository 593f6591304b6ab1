"""Routing procedures: pure functions from votes to parent poses.

Arguments are checked when a program is traced: a wrong type raises TypeError, a wrong shape or
value ValueError. The message names the argument and says what was expected.
"""

from capsjax.routing.attention import attention_routing as attention_routing
from capsjax.routing.blocking import blocked_vmap as blocked_vmap
from capsjax.routing.blocking import choose_block_size as choose_block_size
from capsjax.routing.blocking import in_blocks as in_blocks
from capsjax.routing.blocking import over_devices as over_devices
from capsjax.routing.dynamic import dynamic_routing as dynamic_routing
from capsjax.routing.dynamic import uniform_routing as uniform_routing
from capsjax.routing.em import em_routing as em_routing
from capsjax.routing.em import published_inverse_temperature as published_inverse_temperature
from capsjax.routing.em import softmax_over_parents as softmax_over_parents
from capsjax.routing.inverted_attention import (
    inverted_attention_routing as inverted_attention_routing,
)
from capsjax.routing.patches import WindowVotes as WindowVotes
from capsjax.routing.patches import pose_patches as pose_patches
from capsjax.routing.patches import softmax_over_windows as softmax_over_windows
from capsjax.routing.routed import Routed as Routed
from capsjax.routing.routed import coupling_entropy as coupling_entropy
from capsjax.routing.schedules import FixedPoint as FixedPoint
from capsjax.routing.schedules import concurrent as concurrent
from capsjax.routing.schedules import fixed_point as fixed_point
from capsjax.routing.schedules import sequential as sequential
from capsjax.routing.self_attention import self_attention_routing as self_attention_routing
from capsjax.routing.slots import slot_attention as slot_attention
from capsjax.routing.votes import DenseVotes as DenseVotes
from capsjax.routing.votes import LinearVotes as LinearVotes
from capsjax.routing.votes import Votes as Votes
