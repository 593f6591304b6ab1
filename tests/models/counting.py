"""Sizes of networks, without the memory for them."""

from flax import nnx

from capsjax import models
from capsjax.training.state import num_parameters, split


def count(name, input_shape=None, num_classes=None, **overrides):
    """Number of parameters of the network `name`, at its published input unless told."""
    published = models.lookup(name)
    shape, classes = input_shape or published.input_shape, num_classes or published.num_classes
    model = nnx.eval_shape(
        lambda: models.create(name, shape, classes, rngs=nnx.Rngs(0), **overrides)
    )
    return num_parameters(split(model)[1])
