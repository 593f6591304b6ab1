import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import export as jax_export
from jax import lax
from jax.extend.core import jaxpr_as_fun

from capsjax import models
from capsjax.evaluation import onnx
from capsjax.routing.votes import LinearVotes

NETWORKS = [
    ("sabour2017_capsnet", (28, 28, 1), {"width": 0.25}),
    ("choi2019_mnist", (28, 28, 1), {}),
    ("tsai2020_cifar10_simple", (32, 32, 3), {}),
    ("efficient_capsnet_mnist", (28, 28, 1), {}),
]


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize(("name", "shape", "options"), NETWORKS)
def test_onnxruntime_gives_the_scores_of_the_network(name, shape, options):
    pytest.importorskip("jax2onnx", reason="the extra `onnx` is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    model = models.create(name, shape, 10, rngs=nnx.Rngs(0), **options)
    model.eval()
    session = onnxruntime.InferenceSession(onnx.export_onnx(model, shape))
    for count in (1, 4):
        images = np.random.default_rng(count).integers(256, size=(count, *shape), dtype=np.uint8)
        (scores,) = session.run(["scores"], {"images": images})
        np.testing.assert_allclose(scores, model(images).scores, atol=1e-5)


def test_rewritten_programs_compute_the_same():
    """Products, loops, padding and this library's primitives, without jax2onnx."""

    def function(x):
        votes = LinearVotes(x, kernel)
        poses = votes.attend(votes.total())[0]
        _, partial = lax.scan(lambda c, y: (c + y, c * y), poses[0], poses, reverse=True)
        padded = lax.pad(poses, 2.0, [(1, 0, 0), (0, 2, 0), (0, 0, 0)])
        return partial, padded, jnp.einsum("bjd,bkd,b->jk", poses, poses, x.sum((1, 2, 3)))

    x, kernel = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(4, 5, 2, 3), (5, 3, 6, 2)])
    )
    program = jax.make_jaxpr(function)(x)
    rewritten = jax.make_jaxpr(lambda x: onnx._evaluate(program, [x]))(x)
    kept = {equation.primitive.name for equation in rewritten.eqns}
    assert not kept & {"scan", "pad", "platform_index", "jit"}
    assert not any(name.startswith("capsjax") for name in kept)
    for got, expected in zip(jaxpr_as_fun(rewritten)(x), function(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize("name", ["efficient_capsnet_mnist", "gu2021_convnet_r"])
def test_networks_are_traced_for_batches_of_any_size(name):
    model = models.create(name, (28, 28, 1), 10, rngs=nnx.Rngs(0), width=0.25)
    model.eval()
    (batch,) = jax_export.symbolic_shape("b")
    images = jax.ShapeDtypeStruct((batch, 28, 28, 1), jnp.uint8)
    assert jax.eval_shape(lambda x: model(x).scores, images).shape == (batch, 10)
