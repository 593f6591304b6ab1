"""Slot attention (Locatello et al. 2020) on images of three tetrominoes, for two cores.

The network sees patches of 5×5 pixels, where the paper's sees single ones: its map has 49
positions, not 1,225. The loss is the mean squared error of the pixels; the loss of the scores
trains only the layer that reads them from the slots. The paper has batches of 64 and a rate of
4e-4 with 10,000 steps of warm-up, for 500,000 steps.
"""

from capsjax.training import config as configs


def get_config():
    config = configs.default(model="slots_tetrominoes", data="tetrominoes")
    # The latest checkpoint counts: the accuracy of scores does not tell how good slots are.
    config.data.validation_images = 0
    config.loss.name = "sigmoid_cross_entropy"
    config.loss.reconstruction, config.loss.reconstruction_weight = "mean", 1.0
    config.optimizer = configs.defaults("optimizer", "adam", learning_rate=1e-3)
    config.schedule = configs.defaults(
        "schedule", "exponential", warmup_steps=500, decay_steps=10_000, decay_rate=0.5
    )
    config.training.epochs = 200  # of 190 steps
    config.training.batch_size = 32
    return config
