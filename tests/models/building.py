"""Networks for tests, without waiting for the compiler."""

import jax
import jax.numpy as jnp
from flax import nnx

from capsjax import models

# Most of the time would go into optimizing programs that run once.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}


def build(name, input_shape, num_classes, *, seed=0, **overrides):
    """`models.create` as one program."""

    def create():
        return models.create(name, input_shape, num_classes, rngs=nnx.Rngs(seed), **overrides)

    graphdef = nnx.graphdef(nnx.eval_shape(create))
    state = jax.jit(lambda: nnx.state(create()), compiler_options=QUICK_TO_COMPILE)()
    return nnx.merge(graphdef, state)


def outline(name, input_shape=None, num_classes=None, **overrides):
    """A network without its numbers, of the published sizes unless others are given."""
    network = models.lookup(name)
    sizes = input_shape or network.input_shape, num_classes or network.num_classes
    return nnx.eval_shape(lambda: models.create(name, *sizes, rngs=nnx.Rngs(0), **overrides))


def traced(name, input_shape=None, num_classes=None, **overrides):
    """All that such a network returns for one image, as shapes."""
    model = outline(name, input_shape, num_classes, **overrides)
    images = jnp.zeros((1, *model.input_shape))
    return nnx.eval_shape(lambda model, images: model(images, capture=True), model, images)


@nnx.jit(static_argnames="capture")
def apply(model, images, mask=None, *, capture=False):
    """`model(images, …)` as one program."""
    return model(images, mask=mask, capture=capture)
