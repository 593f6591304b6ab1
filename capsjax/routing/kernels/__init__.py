"""What routing asks of votes v_ij = P_i W_ij, on every platform, without storing all votes."""

from capsjax.routing.kernels.derivatives import agreement as agreement
from capsjax.routing.kernels.derivatives import combine as combine
from capsjax.routing.kernels.derivatives import scatter as scatter
from capsjax.routing.kernels.derivatives import total as total
from capsjax.routing.kernels.operations import LEAST_TOTAL as LEAST_TOTAL
from capsjax.routing.kernels.operations import attend as attend
from capsjax.routing.kernels.operations import distance as distance
from capsjax.routing.kernels.operations import moments as moments
from capsjax.routing.kernels.settings import interpreted as interpreted
from capsjax.routing.kernels.settings import without_kernels as without_kernels
from capsjax.routing.kernels.softmax import softmax as softmax
