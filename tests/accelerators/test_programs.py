"""A run's programs for machines that are not here: memory, and what devices exchange."""

import runpy
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from capsjax.routing import LinearVotes, dynamic_routing

pytestmark = pytest.mark.accelerators

CONFIGS = Path(__file__).parents[2] / "configs"


@cache
def program_of(name, recipe, program, batch_size, width=None):
    """Returns what comes out of compiling a program of a recipe for a target."""
    from _compile import targets
    from _compile.crosscompile import compile_lowered
    from _compile.programs import programs

    file, *which = recipe.split(":")
    config = runpy.run_path(str(CONFIGS / f"{file}.py"))["get_config"](*which)
    config.training.batch_size = batch_size
    config.model.width = width or config.model.width
    target = targets.find(name)
    return compile_lowered(target, programs(config, targets.devices(target))[program])


DIGITS_PARAMETERS = 663_984
METRICS = 4  # the loss, its two parts, and the accuracy


# Four TPUs of one host, 256 of 64 hosts, eight GPUs.
@pytest.mark.parametrize(
    ("target", "batch_size"), [("v5e:2x2", 32), ("v5e:16x16", 256), ("h100:8", 32)]
)
def test_gradients_are_exchanged_once_and_metrics_with_them(compiled_for, target, batch_size):
    compiled = program_of(target, "digits", "training", batch_size)
    assert compiled.module.collectives == {"all-reduce": (1, 4 * (DIGITS_PARAMETERS + METRICS))}


@pytest.mark.parametrize("target", ["v5e:2x2", "h100:8"])
def test_the_state_is_updated_in_place(compiled_for, target):
    compiled = program_of(target, "digits", "training", 32)
    # Parameters and two moments are given and not given back; 256 steps of five metrics are.
    assert compiled.memory.arguments > 3 * 4 * DIGITS_PARAMETERS
    assert compiled.memory.results < 100_000
    assert compiled.memory.total < 60e6


def test_the_largest_network_keeps_its_memory(compiled_for):
    compiled = program_of("h100", "tsai2020_cifar", "training", 128)
    assert compiled.memory.temporary < 1.3e9


def test_a_step_costs_cycles_and_the_order_of_an_epoch_is_drawn_once(compiled_for):
    compiled = program_of("v5e:2x2", "digits", "training", 32)
    assert 0 < compiled.cycles_of(in_step=False) < compiled.cycles
    assert sum(cost.cycles for cost in compiled.costs) == compiled.cycles
    # No less than the products take: each parameter of the two large layers meets each image.
    assert 0.05 < compiled.milliseconds < 2
    sources = {cost.source.split(":")[0] for cost in compiled.costs[:5]}
    assert "capsjax/layers/convolution.py" in sources


def test_batch_norm_adds_its_statistics_and_their_gradients(compiled_for):
    from flax import nnx

    from capsjax import models
    from capsjax.training.state import num_parameters

    width = 0.125
    network = models.create("choi2019_mnist", (28, 28, 1), 10, rngs=nnx.Rngs(0), width=width)
    parameters = 4 * num_parameters(network)
    compiled = program_of("v5e:2x2", "choi2019:mnist", "training", 20, width)
    ((kind, (number, size)),) = compiled.module.collectives.items()
    assert kind == "all-reduce"
    # Two layers, forward and backward, and then all gradients and metrics at once.
    assert number == 5
    # Mean and variance, their gradients, and the running ones.
    statistics = 4 * 2 * 3 * 2 * max(1, int(64 * width))
    assert size == parameters + 4 * METRICS + statistics


def test_validation_gathers_scores_alone(compiled_for):
    compiled = program_of("v5e:2x2", "digits", "validation", 32)
    assert compiled.module.collectives == {"all-gather": (1, 4 * 32 * 10)}


# Megabytes of temporary memory with the gradient, somewhat above docs/accelerators.md.
@pytest.mark.parametrize(("target", "most"), [("v5e:2x2", 250), ("h100", 450)])
def test_em_stores_no_votes(compiled_for, target, most):
    from _compile.programs import procedure

    function, shapes, _ = procedure("em", gradient=True)
    compiled = compiled_for(target, function, *shapes)
    # Positions, children, parents, and numbers of a vote in the benchmark's row c.
    assert compiled.stores(1568 * 288 * 32 * 16) == []
    assert compiled.memory.temporary < 1e6 * most


@pytest.mark.parametrize("target", ["v5e:2x2", "h100"])
@pytest.mark.parametrize("name", ["slots_7", "slots_11"])
def test_slots_take_a_quarter_of_the_plain_forms_memory(compiled_for, name, target):
    from _compile.programs import PLAIN, procedure

    taken = []
    for form in ("", PLAIN):
        function, shapes, _ = procedure(name + form, gradient=True)
        taken.append(compiled_for(target, function, *shapes).memory.temporary)
    assert taken[0] <= taken[1] / 4


@pytest.mark.parametrize("target", ["v5e:2x2", "h100"])
@pytest.mark.parametrize("rows", [1, 4], ids=["vectors", "matrices"])
def test_float32_has_its_kernels_where_jax_may_use_64_bits(compiled_for, rows, target):
    def loss(poses, kernel):
        return jnp.sum(dynamic_routing(LinearVotes(poses, kernel)).poses ** 2)

    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(8, 72, rows, 4), (72, 4, 10, 4)]
    ]
    for wide in (False, True):
        with jax.enable_x64(wide):
            compiled = compiled_for(target, jax.grad(loss, argnums=(0, 1)), *shapes)
        kernels = compiled.tpu_kernels if target != "h100" else compiled.gpu_kernels
        assert len(kernels) >= 4
        assert not any("f64" in buffer.shape for buffer in compiled.buffers)
