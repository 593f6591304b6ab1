"""Datasets by name, splits of them, and transformations of one example."""

from capsjax.data import splits, transforms
from capsjax.data.dataset import Dataset
from capsjax.data.sources import load

__all__ = ["Dataset", "load", "splits", "transforms"]
