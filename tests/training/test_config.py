import re

import ml_collections
import pytest

from capsjax.training import config as configs
from capsjax.training.build import resolve


@pytest.fixture
def config():
    return configs.default("sabour2017_capsnet", "mnist")


def test_the_papers_recipe(config):
    assert config.training.batch_size == 128
    assert config.optimizer.learning_rate == 1e-3
    assert config.model.num_iterations == 3
    assert config.loss.reconstruction_weight == 0.0005


def test_json_and_back(config):
    config = resolve(config, (28, 28, 1), ("a", "b"))
    again = configs.from_json(configs.to_json(config))
    assert configs.differences(config, again) == []
    assert again.model.decoder_features == (512, 1024)  # a tuple again


def test_differences_name_keys_and_values(config):
    other = configs.default("sabour2017_capsnet", "digits")
    other.training.epochs = 3
    assert configs.differences(config, other) == [
        "data.name: 'mnist' → 'digits'",
        "training.epochs: 50 → 3",
    ]
    resolved = resolve(config, (28, 28, 1), ("a",))
    assert "task.class_names: not set → ('a',)" in configs.differences(config, resolved)


def test_a_key_that_is_not_there_is_an_error(config):
    with pytest.raises(AttributeError, match='Did you mean "epochs"'):
        config.training.epoch = 3


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
    assert configs.differences(config, complete) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.epochs", 2.5, "training.epochs must be an integer, got 2.5"),
        ("training.batch_size", -32, "training.batch_size must be positive, got -32"),
        ("loss.name", "margins", "loss.name must be one of margin, spread, cross_entropy, "),
        ("optimizer.b1", 1.0, "optimizer.b1 must be in [0, 1), got 1.0"),
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


def test_retired_options_of_earlier_versions(config):
    values = configs.to_json(config)
    values["training"]["ema_decay"] = 0.0
    assert configs.differences(config, configs.from_json(values)) == []
    values["training"]["ema_decay"] = 0.9
    (line,) = configs.conflicts(configs.from_json(values), config)
    assert line == "training.ema_decay: 0.9 → not set"
