"""A run of seconds on real digits."""

import jax
import numpy as np

from capsjax import _names
from capsjax.training import config as configs


def tiny_config(npz):
    """180 training images of 8×8, batches of 24, seven steps an epoch, two epochs."""
    config = configs.default("sabour2017_capsnet", f"npz:{npz}")
    config.model.width = 1 / 32
    return _tiny(config)


def quick_config(npz):
    """The same with a network that is compiled in a moment, where any will do."""
    config = configs.default("lin2018_cnn", f"npz:{npz}")
    config.model.width = 1 / 16
    config.loss.name = "cross_entropy"
    config.optimizer.learning_rate = 0.01
    return _tiny(config)


def _tiny(config):
    config.model.kernel_size = 3
    config.data.max_shift = 1
    config.training.batch_size = 24
    config.training.epochs = 2
    config.training.log_every_steps = 3
    return config


def write_digits(path):
    """200 to train on, 50 to test on, as a user's npz file; returns its path."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * 15.9).astype(np.uint8)
    np.savez(
        path,
        images=images[:200],
        labels=digits.target[:200],
        test_images=images[200:250],
        test_labels=digits.target[200:250],
    )
    return path


def assert_same(result, other):
    """Two runs ended in the same bits and with the same history."""
    jax.tree.map(np.testing.assert_array_equal, result.state, other.state)
    assert result.history.to_json() == other.history.to_json()


# For experiments/train.py --config=tests/tiny.py:FILE.npz
get_config = tiny_config


def differences(old, new):
    """One line for each key in which two configs differ."""
    return _names.differences(configs.flatten(old), configs.flatten(new))
