"""Every file of configs/ describes a run that can be built; nothing is trained."""

import importlib.util
from pathlib import Path

import jax
import pytest
from _reproduce.registry import lookup
from _reproduce.settings import run_config
from flax import nnx

from capsjax import models
from capsjax.analysis.transfer import SCHEMES
from capsjax.data import tasks
from capsjax.data.accuracy import top
from capsjax.training import config as configs
from capsjax.training import objective, optimizers

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))
# What may follow the file's name after a colon, and images and classes of each task.
VARIANTS = {
    "choi2019": ["mnist_plus", "affnist", "cifar10", "cifar10_plus"],
    "gu2021_affnist": [
        n
        for n in models.names()
        if n.startswith("gu2021") and n not in ("gu2021_convnet_r", "gu2021_convnet_fc_lk")
    ],
    "lin2018_multimnist": ["lin2018_cnn"],
    "lin2018_transfer": ["A", "B", *SCHEMES, "A2B,cnn", "B,cnn"],
    "tsai2020_cifar": [n for n in models.names() if n.startswith("tsai2020") and "cifar" in n],
    "tsai2020_diverse": [n for n in models.names() if n.startswith("tsai2020") and "diverse" in n],
}
CASES = [(f.stem, v) for f in FILES for v in [None, *VARIANTS.get(f.stem, [])]]
SHAPES = {
    "mnist": (28, 28, 1),
    "digits": (28, 28, 1),
    "affnist_generated": (40, 40, 1),
    "cifar10": (32, 32, 3),
    "cifar100": (32, 32, 3),
}


def load(stem, variant=None):
    spec = importlib.util.spec_from_file_location(stem, FILES[0].parent / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config() if variant is None else module.get_config(variant)


@pytest.mark.parametrize(("stem", "variant"), CASES)
def test_builds(stem, variant):
    config = load(stem, variant)
    shape = SHAPES.get(config.data.name, (36, 36, 1))
    num_classes = 100 if config.data.name == "cifar100" else 10
    resolved = configs.resolve(config, shape, tuple(map(str, range(num_classes))))
    assert configs.differences(resolved, configs.from_json(configs.to_json(resolved))) == []
    assert tasks.options(config.data.name).keys() == dict(config.data).keys() - {"name"}
    objective.make_objective(**config.loss, rule=top(1))

    def build():
        model = models.create(
            **config.model, input_shape=shape, num_classes=num_classes, rngs=nnx.Rngs(0)
        )
        params = nnx.state(model, nnx.Param)
        optimizer = optimizers.make_optimizer(
            config.optimizer, config.schedule, steps_per_epoch=100
        )
        return params, optimizer.init(params)

    params, _ = jax.eval_shape(build)
    assert jax.tree.leaves(params)


def test_wrong_variants_are_named():
    for stem, message in (("lin2018_transfer", "A1B"), ("choi2019", "mnist_plus, affnist")):
        with pytest.raises(ValueError, match=message):
            load(stem, "C3B")
    with pytest.raises(ValueError, match="got 'affnist_plus'"):
        load("choi2019", "affnist_plus")


def test_recipes_of_the_papers():
    ours = load("tsai2020_cifar")
    assert dict(ours.optimizer) == {
        "name": "sgd",
        "momentum": 0.9,
        "learning_rate": 0.1,
        "weight_decay": 5e-4,
        "clip_norm": 0.0,
        "accumulate_steps": 1,
    }
    assert load("gu2021_affnist").training.stop_at_accuracy == 0.9922
    assert load("choi2019", "cifar10").schedule.decay == 1e-4
    transfer = load("lin2018_transfer", "A2B")
    assert transfer.frozen_layers == ("conv", "primary", "capsules/0", "capsules/1")
    assert transfer.data.name == "multimnist_b"
    assert load("lin2018_transfer", "A").data.name == "multimnist_a"


@pytest.mark.parametrize(
    ("stem", "variant", "name", "row"),
    [
        ("choi2019", "mnist", "choi2019/table1", "MNIST"),
        ("choi2019", "mnist_plus", "choi2019/table1", "MNIST+"),
        ("choi2019", "affnist", "choi2019/table1", "affNIST"),
        ("choi2019", "cifar10", "choi2019/table1", "CIFAR-10"),
        ("choi2019", "cifar10_plus", "choi2019/table1", "CIFAR-10+"),
        ("tsai2020_cifar", None, "tsai2020/table1", "inverted, ResNet, CIFAR-10"),
        ("gu2021_affnist", "gu2021_convnet_avg", "gu2021/table1", "ConvNet-Avg"),
        ("gu2021_affnist", "gu2021_aff_capsnet", "gu2021/table1", "Aff-CapsNet"),
    ],
)
def test_full_rows_of_reproduce_are_these_recipes(stem, variant, name, row):
    ours = load(stem, variant)
    ours.seeds = 1  # reproduce trains each seed as a run of its own
    assert configs.differences(ours, run_config(lookup(name), row, "full", 0, {})) == []
