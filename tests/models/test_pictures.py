"""The CapsNet for larger pictures."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from sklearn.datasets import load_sample_image

from capsjax import models
from capsjax.data.accuracy import top
from capsjax.data.tasks import Example, Objects
from capsjax.training import objective
from capsjax.training.state import split
from tests.models.building import build, traced


@pytest.mark.parametrize("side", [64, 96])
def test_shapes(side):
    name = f"picture_capsnet_{side}"
    assert models.lookup(name).input_shape == (side, side, 3)
    output = traced(name)
    assert output.features["primary"].shape == (1, *((8, 8) if side == 64 else (6, 6)), 16, 8)
    assert output.reconstruction.shape == (1, side, side, 3)


def test_other_shapes():
    output = traced("picture_capsnet_64", (50, 37, 1), 3, width=1 / 16)
    assert output.features["primary"].shape[1:3] == (7, 5)
    assert output.reconstruction.shape == (1, 50, 37, 1)


@pytest.mark.slow
def test_reconstructions_have_colour():
    """Crops of two photographs: after some steps closer than one grey, or one colour, for each."""
    rng, crops, labels = np.random.default_rng(0), [], []
    for label, name in enumerate(("china.jpg", "flower.jpg")):
        photo = load_sample_image(name)
        for _ in range(32):
            y, x = rng.integers(0, photo.shape[0] - 64), rng.integers(0, photo.shape[1] - 64)
            crops.append(photo[y : y + 64, x : x + 64] / np.float32(255))
            labels.append(label)
    images, labels = jnp.asarray(crops), jax.nn.one_hot(np.array(labels), 2)
    batch = Example(images, labels, Objects(images[:, None], labels[:, None]))
    model = build("picture_capsnet_64", (64, 64, 3), 2, width=0.5)
    model.train()
    graphdef, params, rest = split(model)
    goal = objective.make_objective(rule=top(1), reconstruction="mean", reconstruction_weight=0.392)
    optimizer = optax.adam(3e-3)

    @jax.jit
    def step(params, rest, state):
        def loss_fn(params):
            model = nnx.merge(graphdef, params, rest, copy=True)
            output = model(batch.image, mask=batch.objects.labels)
            return goal(output, batch)[0], (output, nnx.state(model, nnx.Not(nnx.Param)))

        grads, (output, rest) = jax.grad(loss_fn, has_aux=True)(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), rest, state, output.reconstruction[:, 0]

    state = optimizer.init(params)
    for _ in range(150):
        params, rest, state, reconstruction = step(params, rest, state)
    error = float(jnp.mean((reconstruction - images) ** 2))
    grey = images.mean(-1, keepdims=True)
    assert error < 0.5 * float(jnp.mean((images - images.mean(0)) ** 2))
    assert error < float(jnp.mean((images - grey) ** 2)) + float(jnp.var(grey))
    colour = jnp.std(reconstruction, axis=-1).mean(), jnp.std(images, axis=-1).mean()
    assert colour[0] > 0.4 * colour[1]
