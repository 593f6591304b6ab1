"""What holds for every network, whatever it is: small in the default suite, as published in all."""

from functools import cache, partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

from capsjax import models
from capsjax.data.accuracy import top
from capsjax.data.tasks import Example, Objects
from capsjax.training import objective, step
from capsjax.training.state import DEVICES, init_state, split
from tests.models.building import QUICK_TO_COMPILE, build, outline

NUM_CLASSES = 10
BATCH = 8
GOAL = objective.make_objective(rule=top(1))
# These options make a network small, where it has them.
SMALL = {
    "width": 1 / 16,
    "kernel_size": 3,
    "class_units": 4,
    "class_pose": 4,
    "pose_size": 4,
    "channels": 32,
    "pool": False,
    # EM's activations depend on the number of children, which is small here.
    "inverse_temperature": 10.0,
}
# Their parts are in the default suite under the names tsai2020_cifar10_resnet and …_simple_vector.
SAME_PARTS = (
    "tsai2020_cifar10_resnet_vector",
    "tsai2020_em_cifar10_resnet",
    "tsai2020_dynamic_cifar10_resnet",
)
EVERY_NAME = pytest.mark.parametrize("name", models.names())
EVERY_CLASS = pytest.mark.parametrize(
    "name", {models.lookup(name).model: name for name in reversed(models.names())}.values()
)


def switches(name):
    """The options that are not numbers: small networks hardly differ in the rest."""
    return tuple((k, v) for k, v in models.options(name).items() if isinstance(v, str | bool))


def kinds():
    """In the default suite one name stands for all of its kind."""
    seen = set()
    for name in sorted(models.names(), key=lambda name: "resnet" in name):  # quick ones first
        kind = models.lookup(name).model, switches(name)
        marks = [pytest.mark.slow] if kind in seen or name in SAME_PARTS else []
        yield pytest.param(name, {}, marks=marks)
        seen.add(kind)


def small(name, **overrides):
    known = models.options(name)
    overrides = {key: value for key, value in SMALL.items() if key in known} | overrides
    channels = models.lookup(name).input_shape[-1]
    if name.startswith("efficient_capsnet"):
        overrides["primary_kernel"] = 0  # one capsule a channel
    side = 24 if name == "efficient_capsnet_smallnorb" else 14  # for instance norm, 2×2 at least
    return build(name, (side, side, channels), NUM_CLASSES, **overrides)


def published(name):
    return build(name, models.lookup(name).input_shape, NUM_CLASSES)


@cache
def examples(input_shape, num=BATCH, num_classes=NUM_CLASSES):
    """Real digits, padded to `input_shape` and repeated over its channels."""
    digits = load_digits()
    height, width, channels = input_shape
    top, left = (height - 8) // 2, (width - 8) // 2
    images = np.pad(
        digits.images[:num] / 16, [(0, 0), (top, height - 8 - top), (left, width - 8 - left)]
    )
    images = np.repeat(images[..., None], channels, axis=-1).astype(np.float32)
    images, labels = jnp.asarray(images), jax.nn.one_hot(digits.target[:num], num_classes)
    return Example(images, labels, Objects(images[:, None], labels[:, None]))


def apply(graphdef, params, rest, images, mask):
    return nnx.merge(graphdef, params, rest, copy=True)(images, mask=mask)


def training_step(model, dtype):
    """The loss of a training step in `dtype`, its parts and gradients; and its arguments."""
    model.train()
    graphdef, params, rest = split(model)
    options = {"graphdef": graphdef, "objective": GOAL, "compute_dtype": dtype}
    loss = jax.value_and_grad(partial(step.forward, **options), has_aux=True)
    keys = jax.random.split(jax.random.key(0), BATCH)
    return loss, (params, rest, examples(model.input_shape), keys)


def check_step(model, dtype):
    """Everything is finite, and every parameter has a part in the loss."""
    compute, arguments = training_step(model, dtype)
    jitted = jax.jit(compute, compiler_options=QUICK_TO_COMPILE)
    (loss, (output, *_)), grads = jitted(*arguments)
    chex.assert_tree_all_finite((loss, grads, output))
    chex.assert_shape(output.scores, (BATCH, NUM_CLASSES))
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        assert grad.dtype == jnp.float32, jax.tree_util.keystr(path)
        assert np.any(grad), f"no gradient reaches {jax.tree_util.keystr(path)}"


@EVERY_CLASS
def test_equal_networks_have_equal_graphdefs(name):
    """Otherwise nnx.jit would compile each one again."""
    one, other = (nnx.graphdef(outline(name)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        *kinds(),
        ("tsai2020_diverse_vector", {}),
        ("tsai2020_em_cifar10_simple", {"normalize_over": "receptive_field"}),
        ("choi2019_mnist", {"num_conv_caps": 0}),
        ("choi2019_mnist", {"num_conv_caps": 0, "reconstruction": "normal"}),
        ("choi2019_mnist", {"num_conv_caps": 0, "reconstruction": "none"}),
    ],
)
def test_forward_and_one_step(name, overrides):
    check_step(small(name, **overrides), jnp.float32)


@EVERY_CLASS
def test_gradients_of_a_bfloat16_step_are_float32(name):
    """Nothing is compiled; the slow tests run it."""
    compute, arguments = training_step(small(name), jnp.bfloat16)
    (loss, (output, *_)), grads = jax.eval_shape(compute, *arguments)
    assert (loss.dtype, output.scores.dtype) == (jnp.float32, jnp.bfloat16)
    chex.assert_shape(output.scores, (BATCH, NUM_CLASSES))
    assert {grad.dtype for grad in jax.tree.leaves(grads)} == {jnp.dtype(jnp.float32)}


@EVERY_CLASS
def test_batches_sharded_over_explicit_axes(name):
    """Nothing is run: each operation must know how JAX divides its result, and its gradient's."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))
    graphdef, *variables = split(outline(name))
    shape = (BATCH, *models.lookup(name).input_shape)
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    images = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    def total(images, *variables):
        return apply(graphdef, *variables, images, None).scores.sum()

    with jax.set_mesh(mesh):
        grads = jax.eval_shape(jax.grad(total), images, *variables)
    assert grads.sharding.spec[0] == "data"


@pytest.mark.slow
@EVERY_NAME
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def test_forward_and_one_step_as_published(name, dtype):
    check_step(published(name), dtype)


@pytest.mark.slow
@EVERY_NAME
def test_the_loss_falls(name):
    model = small(name)
    model.train()
    batch, optimizer = examples(model.input_shape, 64), optax.adam(1e-3)
    graphdef, state = init_state(model, optimizer)
    options = {"graphdef": graphdef, "objective": GOAL, "compute_dtype": jnp.float32}
    update = partial(step.update, optimizer=optimizer, **options)
    # All examples on one device.
    alone = jax.jit(jax.vmap(update, None, None, axis_name=DEVICES, axis_size=1))
    losses = []
    for i in range(30):
        state, metrics = alone(state, batch, jax.random.split(jax.random.key(i), 64))
        losses.append(float(metrics["margin"]))
    assert np.mean(losses[-3:]) < 0.9 * losses[0], losses


@pytest.mark.slow
@EVERY_NAME
def test_jit_vmap_and_two_devices_give_the_same(name):
    model = small(name)
    model.eval()
    graphdef, params, rest = split(model)
    batch = examples(model.input_shape)

    def forward(params, rest, images, mask):
        return apply(graphdef, params, rest, images, mask)

    def forward_single(params, rest, image, mask):
        return jax.tree.map(lambda x: x[0], forward(params, rest, image[None], mask[None]))

    arguments = (params, rest, batch.image, batch.label)
    jitted = jax.jit(forward)(*arguments)
    mapped = jax.jit(jax.vmap(forward_single, (None, None, 0, 0)))(*arguments)
    parallel = jax.pmap(forward, in_axes=(None, None, 0, 0), devices=jax.devices()[:2])(
        params, rest, *(x.reshape(2, BATCH // 2, *x.shape[1:]) for x in arguments[2:])
    )
    parallel = jax.tree.map(lambda x: x.reshape(BATCH, *x.shape[2:]), parallel)
    for other in (forward(*arguments), mapped, parallel):
        chex.assert_trees_all_close(other, jitted, rtol=1e-4, atol=1e-5)
