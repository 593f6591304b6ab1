"""Networks for tests, without waiting for the compiler."""

import jax
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


@nnx.jit(static_argnames="capture")
def apply(model, images, mask=None, *, capture=False):
    """`model(images, …)` as one program."""
    return model(images, mask=mask, capture=capture)
