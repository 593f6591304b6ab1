"""Datasets by name, splits of them, and transformations of one example."""

from capsjax._lazy import modules_of
from capsjax.data import splits, transforms
from capsjax.data.dataset import Dataset
from capsjax.data.images import read_image
from capsjax.data.sources import load, names

__all__ = ["Dataset", "load", "names", "read_image", "splits", "transforms"]

__getattr__, __dir__ = modules_of(__name__)
