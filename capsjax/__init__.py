"""Capsule networks in JAX."""

from capsjax._version import __version__

__all__ = ["__version__"]
