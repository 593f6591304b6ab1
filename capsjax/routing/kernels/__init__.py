"""What routing asks of votes v_ij = P_i W_ij, with no vote ever stored, on every platform."""

from capsjax.routing.kernels.derivatives import agreement, combine, scatter, total
from capsjax.routing.kernels.forms import interpreted, without_kernels
from capsjax.routing.kernels.operations import LEAST_TOTAL, attend, distance, moments
from capsjax.routing.kernels.softmax import softmax

__all__ = [
    "LEAST_TOTAL",
    "agreement",
    "attend",
    "combine",
    "distance",
    "interpreted",
    "moments",
    "scatter",
    "softmax",
    "total",
    "without_kernels",
]
