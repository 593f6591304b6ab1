"""Runs: directories, checkpoints, histories, signals and several hosts around a training."""

from capsjax._lazy import modules_of

__getattr__, __dir__ = modules_of(__name__)
