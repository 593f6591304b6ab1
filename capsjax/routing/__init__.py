"""Routing procedures: pure functions from votes to parent poses."""

from capsjax.routing.dynamic import dynamic_routing
from capsjax.routing.routed import Routed
from capsjax.routing.uniform import uniform_routing
from capsjax.routing.votes import DenseVotes, LinearVotes, Votes

__all__ = [
    "DenseVotes",
    "LinearVotes",
    "Routed",
    "Votes",
    "dynamic_routing",
    "uniform_routing",
]
