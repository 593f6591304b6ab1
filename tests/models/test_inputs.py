from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax import models
from capsjax.models.model import Inputs
from tests.models.building import outline

MEAN, STD = (0.5, 0.25, 0.4), (0.2, 0.1, 0.3)
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 9, 9, 3), np.uint8)


def test_normalized():
    inputs = Inputs((9, 9, 3), MEAN, STD)
    expected = (IMAGES / 255 - MEAN) / STD
    np.testing.assert_allclose(inputs(jnp.asarray(IMAGES)), expected, rtol=1e-5, atol=1e-6)
    unit = jnp.asarray(IMAGES / np.float32(255))
    np.testing.assert_allclose(inputs(unit), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(Inputs((9, 9, 3), (), ())(unit), unit)
    assert inputs(unit.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize(("mean", "std"), [(MEAN, ()), ((0.5,), (0.2,)), (MEAN, (0.2, 0.0, 0.3))])
def test_bad_normalization(mean, std):
    with pytest.raises(ValueError, match="mean and std must have 3 numbers each"):
        Inputs((9, 9, 3), mean, std)


def test_normalization_by_what_is_not_a_number():
    with pytest.raises(ValueError, match="each of std must be finite, got nan"):
        Inputs((9, 9, 3), MEAN, (1, 1, np.nan))


@pytest.mark.parametrize(
    "name",
    [  # one of each class
        "tsai2020_cifar10_simple",
        "tsai2020_dynamic_cifar10_resnet",
        "tsai2020_em_cifar10_simple",
        "tsai2020_cnn_cifar10",
        "tsai2020_resnet18_cifar10",
        "tsai2020_dynamic_cifar10_simple",
    ],
)
def test_networks_that_normalise(name):
    plain = outline(name, width=1 / 32)
    model = outline(name, width=1 / 32, mean=MEAN, std=STD)
    assert model.inputs == Inputs((32, 32, 3), MEAN, STD)
    # Constants: nothing to be trained or saved.
    trees = [jax.tree.structure(nnx.to_pure_dict(nnx.state(m))) for m in (plain, model)]
    assert trees[0] == trees[1]


def test_capsnet_normalises_what_it_sees():
    images = jnp.asarray(IMAGES / np.float32(255))

    @jax.jit
    def reconstructions():
        options = {"kernel_size": 3, "width": 1 / 32}
        create = partial(models.create, "sabour2017_capsnet", (9, 9, 3), 10, **options)
        inside = create(rngs=nnx.Rngs(0), mean=MEAN, std=STD)(images)
        outside = create(rngs=nnx.Rngs(0))((images - jnp.array(MEAN)) / jnp.array(STD))
        return inside.reconstruction, outside.reconstruction

    np.testing.assert_allclose(*reconstructions(), rtol=1e-4, atol=1e-6)
