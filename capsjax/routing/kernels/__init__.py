"""What routing asks of votes v_ij = P_i W_ij, with no vote ever stored, on every platform."""

from capsjax.routing.kernels.attention import attend
from capsjax.routing.kernels.derivatives import agreement, combine, distance, scatter
from capsjax.routing.kernels.forms import interpreted, without_kernels

__all__ = [
    "agreement",
    "attend",
    "combine",
    "distance",
    "interpreted",
    "scatter",
    "without_kernels",
]
