"""Evaluates trained networks on data sets: scores in batches, summaries, ensembles, export."""

from capsjax._lazy import modules_of

__getattr__, __dir__ = modules_of(__name__)
