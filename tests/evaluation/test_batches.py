import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.evaluation.batches import in_batches, outline
from capsjax.models import Output


class Scaled(nnx.Module):
    """Multiplies; in training mode it gives a wrong result."""

    def __init__(self):
        self.factor = nnx.Param(jnp.float32(2))
        self.norm = nnx.BatchNorm(1, rngs=nnx.Rngs(0), epsilon=0.0)

    def __call__(self, images, *, capture=False):
        scores = self.norm(images.reshape(len(images), -1)[:, :1]) * self.factor[...]
        return Output(scores, features={"scores": scores, "images": images} if capture else {})


calls = []


def scores(model, images, offset):
    calls.append(images.shape)  # once for each program
    return {"scores": model(images).scores + offset}


@pytest.mark.parametrize("batch_size", [1, 3, 5, 7, 100])
def test_batches_change_nothing(batch_size):
    images = np.arange(7, dtype=np.float32).reshape(7, 1, 1, 1)
    model = Scaled()
    result = in_batches(scores, model, (images,), jnp.float32(0.5), batch_size=batch_size)
    assert isinstance(result["scores"], np.ndarray)
    np.testing.assert_allclose(result["scores"][:, 0], np.arange(7) * 2 + 0.5)
    assert not model.norm.use_running_average, "the network itself is not changed"


def test_one_program_for_all_batches_and_states():
    model = Scaled()
    calls.clear()
    images = np.zeros((11, 1, 1, 1), np.float32)
    in_batches(scores, model, (images,), jnp.float32(0), batch_size=4)
    model.factor.set_value(jnp.float32(3))
    in_batches(scores, model, (images[:9],), jnp.float32(1), batch_size=4)
    assert calls == [(4, 1, 1, 1)]


@pytest.mark.parametrize("own", [1, 8])
def test_a_mesh_that_the_caller_has_set(own):
    images = np.arange(7, dtype=np.float32).reshape(7, 1, 1, 1)
    with jax.set_mesh(jax.make_mesh((own,), ("x",))):
        result = in_batches(
            scores, Scaled(), (images,), jnp.float32(0), batch_size=4, devices=jax.devices()[:2]
        )
    np.testing.assert_allclose(result["scores"][:, 0], np.arange(7) * 2)


def test_outline_computes_nothing():
    shapes = outline(Scaled(), (1, 1, 1))
    assert shapes.scores.shape == (1, 1)
    assert list(shapes.features) == ["scores", "images"], "in the network's order"


@pytest.mark.parametrize(
    ("arrays", "batch_size", "match"),
    [
        ((np.zeros((0, 1, 1, 1)),), 1, r"at least 1; got lengths \[0\]"),
        ((np.full((2, 1, 1, 1), 255.0),), 1, "floats up to 255.0: divide by 255"),
        ((np.zeros((2, 1, 1, 1)), np.zeros(3)), 1, r"got lengths \[2, 3\]"),
        ((np.zeros((2, 1, 1, 1)),), 0, "a positive multiple of the number of devices, 1, got 0"),
    ],
)
def test_bad_input(arrays, batch_size, match):
    with pytest.raises(ValueError, match=match):
        in_batches(scores, Scaled(), arrays, batch_size=batch_size)
