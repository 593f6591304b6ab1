"""Every file of configs/ describes a run that can be built; nothing is trained."""

import _configs
import jax
import ml_collections
import pytest
from _reproduce.experiment import SCALES
from _reproduce.runs import trainings
from flax import nnx
from papers import EXPERIMENTS

from capsjax import models
from capsjax.data import tasks
from capsjax.data.accuracy import top
from capsjax.training import config as configs
from capsjax.training import objective, optimizers
from capsjax.training.build import resolve
from tests.tiny import differences

FILES = _configs.files()
# What may follow the file's name after a colon.
VARIANTS = {
    "choi2019": ["mnist_plus", "affnist", "cifar10_plus", "mnist,capsnet", "cifar10_plus,capsnet"],
    "efficient_capsnet": ["multimnist"],
    "gu2021_affnist": [
        n
        for n in models.names()
        if n.startswith("gu2021") and n[-2:] not in ("_r", "cr", "sf", "lk")
    ],
    "gu2021_mnist": ["gu2021_convnet_r", "gu2021_convnet_cr", "gu2021_convnet_cr_sf"],
    "gu2021_multimnist": ["gu2021_convnet_fc_lk"],
    "pictures": ["96"],
    "sabour2017_affnist": ["cnn"],
    "sabour2017_mnist": ["cnn"],
    "sabour2017_multimnist": ["cnn"],
    "lin2018_multimnist": ["lin2018_cnn"],
    "lin2018_transfer": ["A", "B", "A1B", "A2B", "B1B", "B2B", "A2B,cnn", "B,cnn"],
    "tsai2020_cifar": [n for n in models.names() if n.startswith("tsai2020") and "cifar" in n],
    "tsai2020_diverse": [n for n in models.names() if n.startswith("tsai2020") and "diverse" in n],
}
CASES = [(stem, v) for stem in FILES for v in [None, *VARIANTS.get(stem, [])]]
SHAPES = {
    "mnist": (28, 28, 1),
    "mnist_distorted": (28, 28, 1),
    "digits": (28, 28, 1),
    "affnist_generated": (40, 40, 1),
    "cifar10": (32, 32, 3),
    "cifar100": (32, 32, 3),
    "tetrominoes": (35, 35, 3),
    "blobs": (1, 1, 2),
}


def sizes(data):
    """The shape of a task's images and the number of its classes."""
    return SHAPES.get(data, (36, 36, 1)), {"cifar100": 100, "blobs": 3}.get(data, 10)


def load(stem, variant=None):
    return _configs.read(stem if variant is None else f"{stem}:{variant}")


@pytest.mark.parametrize(("stem", "variant"), CASES)
def test_builds(stem, variant):
    config = load(stem, variant)
    shape, num_classes = sizes(config.data.name)
    configs.override(config, {})  # as --help and a command line do
    resolved = resolve(config, shape, tuple(map(str, range(num_classes))))
    assert differences(resolved, configs.from_json(configs.to_json(resolved))) == []
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


def test_recipes_of_the_papers():
    optimizer = load("tsai2020_cifar").optimizer
    assert (optimizer.name, optimizer.learning_rate, optimizer.momentum) == ("sgd", 0.1, 0.9)
    assert optimizer.weight_decay == 5e-4
    assert load("gu2021_affnist").training.stop_at_accuracy == 0.9922
    assert load("choi2019", "cifar10").schedule.decay == 1e-4
    transfer = load("lin2018_transfer", "A2B")
    assert transfer.frozen_layers == ("conv", "primary", "capsules/0", "capsules/1")
    assert transfer.data.name == "multimnist_b"
    assert load("lin2018_transfer", "A").data.name == "multimnist_a"

    assert load("tsai2020_diverse").data.validation_fraction == 0  # 350 × 60,000, nothing held out
    for name, best in (("", 4), ("dynamic_", 1), ("em_", 2)):  # of figure 4
        network = f"tsai2020_{name}cifar10_simple"
        assert load("tsai2020_cifar", network).model.num_iterations == best


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gu2021_mnst", "did you mean 'gu2021_mnist'"),
        ("digits:small", "it has one recipe: leave out ':small'"),
        ("lin2018_transfer:C3B", "A1B"),
        ("choi2019:C3B", "mnist_plus, affnist"),
        ("choi2019:affnist_plus", "got 'affnist_plus'"),
    ],
)
def test_unknown_files_and_variants_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        _configs.read(text)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_is_its_config_and_what_it_declares(name):
    """Whatever else a run differs in from its file of configs/ would be a second recipe."""
    experiment = EXPERIMENTS[name]
    for scale in SCALES:
        for row in experiment.at(scale).values():
            recipe = _configs.read(row.config)
            declared = {
                **experiment.scales[scale].overrides,
                **row.changes,
                **row.at.get(scale, {}),
                "seed": 1000 if row.pretrained else 0,
                "seeds": 1,
            }
            config = trainings(experiment, row, scale, 0, {})[-1]
            source = config.data.get("source", config.data.name)
            assert source == "blobs" or (source == "digits") == (scale == "smoke")
            ours = configs.flatten(config)
            if row.pretrained:
                declared["init_from"] = ours["init_from"]
            sections = {k: v for k, v in declared.items() if isinstance(v, dict)}  # whole ones
            recipe = recipe.to_dict() | sections
            others = {k: v for k, v in declared.items() if k not in sections}
            flat = configs.flatten(ml_collections.ConfigDict(recipe))
            assert ours == flat | others, (scale, row)


def test_every_recipe_of_a_paper_is_some_row_s():
    used = {row.config for e in EXPERIMENTS.values() for row in e.rows}
    used |= {row.pretrained for e in EXPERIMENTS.values() for row in e.rows}
    own = {"digits", "pictures", "efficient_capsnet", "slots"}  # not of the five papers
    assert set(FILES) - own == {u.partition(":")[0] for u in used if u}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_rows_of_full_scale_do_not_restate_their_config(name):
    """A change is to something else than the file says, unless the rows differ in it."""
    experiment = EXPERIMENTS[name]
    rows = experiment.at("full").values()
    for row in rows:
        recipe = configs.flatten(_configs.read(row.config))
        changes = {**experiment.scales["full"].overrides, **row.changes, **row.at.get("full", {})}
        for key, value in changes.items():
            varies = len({other.changes.get(key) for other in rows}) > 1
            assert varies or recipe[key] != value, (row, key)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_full_scale_shows_every_version_of_an_image(name):
    experiment = EXPERIMENTS[name]
    for row in experiment.at("full").values():
        config = trainings(experiment, row, "full", 0, {})[-1]
        assert config.training.epochs >= config.data.get("versions", 0), row
