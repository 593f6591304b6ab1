"""Training that is the same run on any number of devices, and goes on where it stopped."""

from capsjax._lazy import modules_of

__getattr__ = modules_of(__name__)
