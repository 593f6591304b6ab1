import pytest

from capsjax.training import config as configs


@pytest.fixture
def config():
    return configs.default("sabour2017_capsnet", "mnist")


def test_the_papers_recipe(config):
    assert config.training.batch_size == 128
    assert config.optimizer.learning_rate == 1e-3
    assert config.model.num_iterations == 3
    assert config.loss.reconstruction_weight == 0.0005


def test_json_and_back(config):
    config = configs.resolve(config, (28, 28, 1), ("a", "b"))
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
    resolved = configs.resolve(config, (28, 28, 1), ("a",))
    assert "task.class_names: 'not set' → ('a',)" in configs.differences(config, resolved)


def test_a_key_that_is_not_there_is_an_error(config):
    with pytest.raises(AttributeError, match='Did you mean "epochs"'):
        config.training.epoch = 3
