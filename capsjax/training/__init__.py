"""Training: a run gives the same result on any number of devices, and can be resumed."""

from capsjax._lazy import modules_of

__getattr__, __dir__ = modules_of(__name__)
