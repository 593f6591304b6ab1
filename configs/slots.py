"""Slot attention (Locatello et al. 2020) on images of three tetrominoes: hours on two cores.

The network sees patches of 5×5 pixels, where the paper's sees single ones: its map has 49
positions, not 1,225. The loss is the mean squared error of the pixels; the loss of the scores
trains only the layer that reads them from the slots.
"""

from capsjax.training import config as configs
from capsjax.training import optimizers


def get_config():
    config = configs.default(model="slots_tetrominoes", data="tetrominoes")
    config.loss.name = "sigmoid_cross_entropy"
    config.loss.reconstruction, config.loss.reconstruction_weight = "mean", 1.0
    config.optimizer = optimizers.optimizer_options("adam", learning_rate=4e-4)
    config.schedule = optimizers.schedule_options("constant", warmup_steps=1000)
    config.training.epochs = 300
    config.training.batch_size = 64
    return config
