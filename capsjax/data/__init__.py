"""Datasets by name, splits of them, and transformations of one example."""

from capsjax.data import splits, transforms
from capsjax.data.dataset import Dataset
from capsjax.data.images import read_image
from capsjax.data.sources import load, names

__all__ = ["Dataset", "load", "names", "read_image", "splits", "transforms"]
