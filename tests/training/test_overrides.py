import re

import pytest

from capsjax.data import tasks
from capsjax.training import config as configs
from capsjax.training.overrides import override


@pytest.fixture
def config():
    return configs.default("sabour2017_capsnet", "digits")


def test_values_take_the_types_that_they_replace(config):
    texts = {
        "training.epochs": "3",
        "optimizer.learning_rate": "1",
        "data.flip": "true",
        "model.decoder_features": "(8, 9)",
        "init_from": "3",
    }
    new = override(config, texts)
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
    assert override(config, {"frozen_layers": text}).frozen_layers == value


def test_another_name_comes_with_its_own_options(config):
    config.optimizer.learning_rate = 0.5
    config.model.width = 0.25
    new = override(
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


def test_a_default_of_the_old_name_is_not_kept(config):
    assert config.data.max_shift == 2
    new = override(config, {"data.name": "multimnist"})
    assert new.data.max_shift == tasks.options("multimnist")["max_shift"] != 2


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("training.epoch", "3", "no option 'training.epoch': did you mean 'training.epochs'"),
        ("trainin.epochs", "3", "no option 'trainin.epochs': did you mean 'training.epochs'"),
        ("training.epochs.more", "3", "no option 'training.epochs.more': did you mean"),
        ("training", "3", "no option 'training': did you mean 'training."),
        ("training.epochs", "3.5", "training.epochs must be an integer, got 3.5"),
        ("training.epochs", "true", "must be an integer, got True"),
        ("data.flip", "1", "data.flip must be True or False, got 1"),
        ("optimizer.learning_rate", "fast", "must be a number, got 'fast'"),
        ("optimizer.name", "sdg", "unknown optimizer.name 'sdg': did you mean 'sgd'"),
        ("model.name", "sabour", "unknown model 'sabour': did you mean 'sabour2017_capsnet'"),
    ],
)
def test_what_does_not_fit(config, key, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        override(config, {key: text})


def test_an_option_that_may_be_none():
    config = configs.default("tsai2020_cifar10_simple", "cifar10")
    assert override(config, {"model.block_size": "4"}).model.block_size == 4
    assert override(config, {"model.block_size": "None"}).model.block_size is None
    for text in ("abc", "true", "2.5"):
        with pytest.raises(ValueError, match="block_size must be an integer, got"):
            override(config, {"model.block_size": text})


def test_what_keeps_a_run_from_going_on(config):
    more, fewer = config.copy_and_resolve_references(), config.copy_and_resolve_references()
    more.training.epochs, fewer.training.epochs = 60, 40
    assert configs.conflicts(config, more) == []
    assert configs.conflicts(config, fewer) == ["training.epochs: 50 → 40"]
    older = config.to_dict()
    del older["model"]["primary_relu"]  # as if it was written before there was this option
    older = configs.from_json(older)
    assert configs.conflicts(older, config) == []
    more.model.primary_relu = True
    assert configs.conflicts(older, more) == ["model.primary_relu: False → True"]
