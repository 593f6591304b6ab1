import re

import ml_collections
import numpy as np
import pytest

from capsjax.data import tasks
from capsjax.training import config as configs
from capsjax.training.build import resolve
from tests.tiny import differences


@pytest.fixture
def config():
    return configs.default("sabour2017_capsnet", "digits")


def test_the_papers_recipe(config):
    assert config.training.batch_size == 128
    assert config.optimizer.learning_rate == 1e-3
    assert config.model.num_iterations == 3
    assert config.loss.reconstruction_weight == 0.0005


def test_lists_become_tuples(config):
    tree = config.to_dict()
    tree["model"]["decoder_features"] = [8, 16]
    tree["schedule"] = {"name": "steps", "epochs": [1, 2]}
    completed = configs.complete(ml_collections.ConfigDict(tree))
    assert (completed.model.decoder_features, completed.schedule.epochs) == ((8, 16), (1, 2))


def test_differences_name_keys_and_values(config):
    other = configs.default("sabour2017_capsnet", "mnist")
    other.training.epochs = 3
    assert differences(config, other) == [
        "data.name: 'digits' → 'mnist'",
        "training.epochs: 50 → 3",
    ]
    resolved = resolve(config, (28, 28, 1), ("a",))
    assert "task.class_names: not set → ('a',)" in differences(config, resolved)


def test_every_option_is_documented(config):
    config.training.epochs = 3
    described = configs.describe(config)
    assert described.keys() == configs.flatten(config).keys()
    assert all(option.text for option in described.values())
    assert described["training.epochs"] == (3, "positive", "passes over the training images.")
    assert described["optimizer.name"].allowed == "adam, rmsprop, sgd"
    assert described["data.flip"].allowed == "True or False"
    assert "pixels, either way" in described["data.max_shift"].text


def test_a_complete_config_has_defaults_for_what_is_missing(config):
    values = config.to_dict()
    del values["training"]["epochs"], values["loss"]["classes"], values["frozen_layers"]
    complete = configs.complete(ml_collections.ConfigDict(values))
    assert differences(config, complete) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.epochs", 2.5, "training.epochs must be an integer, got 2.5"),
        ("training.batch_size", -32, "training.batch_size must be positive, got -32"),
        ("loss.name", "margins", "loss.name must be one of margin, spread, cross_entropy, "),
        ("loss.classes", "max", "loss.classes must be one of sum, mean, got 'max'"),
        ("loss.reconstruction", "max", "loss.reconstruction must be one of sum, mean, got 'max'"),
        ("loss.reconstruction_weight", -1.0, "loss.reconstruction_weight must not be negative"),
        ("loss.reconstruction_weight", float("nan"), "loss.reconstruction_weight must be finite"),
        ("optimizer.name", "adm", "unknown optimizer.name 'adm': did you mean 'adam'"),
        ("optimizer.momentum", 0.5, "no option 'optimizer.momentum'"),
        ("optimizer.learning_rate", 0.0, "optimizer.learning_rate must be positive"),
        ("optimizer.b1", 1.0, "optimizer.b1 must be in [0, 1), got 1.0"),
        ("optimizer.clip_norm", -1.0, "optimizer.clip_norm must not be negative, got -1.0"),
        ("schedule.name", "step", "did you mean 'steps'"),
        ("schedule.decay_steps", 0, "schedule.decay_steps must be positive"),
        ("schedule.warmup_steps", -1, "schedule.warmup_steps must not be negative"),
        ("schedule.epochs", (3,), "no option 'schedule.epochs'"),
        ("schedule.decay_rate", 1.5, "schedule.decay_rate must be in (0, 1], got 1.5"),
        ("init_layers", (1,), "each of init_layers must be a string, got 1"),
        ("seed", -1, "seeds must lie in [0, 4294967295], got -1"),
        ("key_version", 3, "key_version must be from 1 to 2, got 3"),
        ("model.width", 0.0, "width must be at least 0.0009765625"),
        ("model.mean", 3, "model.mean must be a tuple, got 3"),
        ("training", 3, "the config has no section 'training'"),
    ],
)
def test_values_that_are_not_allowed(config, key, value, message):
    section, _, name = key.rpartition(".")
    values = config.to_dict()
    (values[section] if section else values)[name] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        configs.complete(ml_collections.ConfigDict(values))


def test_numpy_numbers_can_be_saved(config):
    config.model.decoder_features = (np.int64(64),)
    config.model.mean = tuple(np.full((3, 3, 1), 0.5, np.float32).mean((0, 1)))
    saved = configs.to_json(configs.complete(config))["model"]
    assert saved["decoder_features"] == [64]
    assert saved["mean"] == [0.5]


def test_retired_options_of_earlier_versions(config):
    values = configs.to_json(config)
    values["training"]["ema_decay"] = 0.0
    assert differences(config, configs.from_json(values)) == []
    values["training"]["ema_decay"] = 0.9
    (line,) = configs.conflicts(configs.from_json(values), config)
    assert line == "training.ema_decay: 0.9 → not set"


def test_values_take_the_types_that_they_replace(config):
    texts = {
        "training.epochs": "3",
        "optimizer.learning_rate": "1",
        "data.flip": "true",
        "model.decoder_features": "(8, 9)",
        "init_from": "3",
    }
    new = configs.override(config, texts)
    assert (new.training.epochs, new.optimizer.learning_rate) == (3, 1.0)
    assert isinstance(new.optimizer.learning_rate, float)
    assert new.data.flip is True
    assert new.model.decoder_features == (8, 9)
    assert new.init_from == "3"
    assert config.training.epochs == 50, "the config that was given is left alone"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("conv", ("conv",)),
        ("conv,primary", ("conv", "primary")),
        ("('conv',)", ("conv",)),
        ("", ()),
        ("()", ()),
    ],
)
def test_names_of_layers(config, text, value):
    assert configs.override(config, {"frozen_layers": text}).frozen_layers == value


def test_another_name_comes_with_its_own_options(config):
    config.optimizer.learning_rate = 0.5
    config.model.width = 0.25
    new = configs.override(
        config,
        {
            "optimizer.momentum": "0.8",
            "optimizer.name": "sgd",
            "schedule.name": "constant",
            "data.name": "multimnist",
            "model.name": "lin2018_cnn",
        },
    )
    sgd = {"name": "sgd", "momentum": 0.8, "learning_rate": 0.5}  # which the config had changed
    assert new.optimizer.to_dict() == configs.defaults("optimizer", "sgd") | sgd
    assert new.schedule.to_dict() == configs.defaults("schedule", "constant")
    assert new.data.to_dict() == {"name": "multimnist", **tasks.options("multimnist")}
    assert new.model.to_dict() == configs.defaults("model", "lin2018_cnn") | {"width": 0.25}


def test_only_the_name_changed(config):
    config.optimizer.name = "sgd"
    with pytest.raises(ValueError, match=r"no option 'optimizer\.b1'") as raised:
        configs.complete(config)
    assert raised.value.__notes__ == [
        "To take that name: config.optimizer = defaults('optimizer', 'sgd')"
    ]
    config.optimizer = configs.defaults("optimizer", "sgd")
    assert configs.complete(config).optimizer.momentum == 0.9


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("training.epoch", "3", "no option 'training.epoch': did you mean 'training.epochs'"),
        ("model.widht", "3", "no option 'model.widht': did you mean 'model.width'"),
        ("trainin.epochs", "3", "no option 'trainin.epochs': did you mean 'training.epochs'"),
        ("model.learning_rate", "3", "did you mean 'optimizer.learning_rate'"),
        ("training.epochs.more", "3", "no option 'training.epochs.more': did you mean"),
        ("training", "3", "no option 'training': did you mean 'training."),
        ("training.epochs", "true", "must be an integer, got True"),
        ("data.flip", "1", "data.flip must be True or False, got 1"),
        ("optimizer.learning_rate", "fast", "must be a number, got 'fast'"),
        ("optimizer.name", "sdg", "unknown optimizer.name 'sdg': did you mean 'sgd'"),
        ("model.name", "sabour", "unknown model 'sabour': did you mean 'sabour2017_capsnet'"),
    ],
)
def test_what_does_not_fit(config, key, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        configs.override(config, {key: text})


def test_an_option_that_may_be_none():
    config = configs.default("tsai2020_cifar10_simple", "cifar10")
    assert configs.override(config, {"model.block_size": "4"}).model.block_size == 4
    assert configs.override(config, {"model.block_size": "None"}).model.block_size is None
    for text in ("abc", "true", "2.5"):
        with pytest.raises(ValueError, match="block_size must be an integer, got"):
            configs.override(config, {"model.block_size": text})


def test_what_keeps_a_run_from_going_on(config):
    more, fewer = config.copy_and_resolve_references(), config.copy_and_resolve_references()
    more.training.epochs, fewer.training.epochs = 60, 40
    more.checkpoints.keep = 5
    assert configs.conflicts(config, more) == configs.conflicts(config, fewer) == []
    for before, after, refused in ((2, 3, []), (3, 2, ["seeds: 3 → 2"]), (1, 2, ["seeds: 1 → 2"])):
        config.seeds = before
        assert configs.conflicts(config, configs.override(config, {"seeds": f"{after}"})) == refused
    config.seeds = 1
    older = config.to_dict()
    del older["model"]["primary_relu"]  # as if it was written before there was this option
    older = configs.from_json(older)
    assert configs.conflicts(older, config) == []
    more.model.primary_relu = True
    assert configs.conflicts(older, more) == ["model.primary_relu: False → True"]
