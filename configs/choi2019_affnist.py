"""AR CapsNet on translated MNIST, tested on affNIST (Choi et al. 2019, table 1).

Its shift of 0.2 is at most 5.6 pixels of a digit: 6 here, so that the canvas of 40 is filled. The
epochs are those of MNIST; the paper gives none for this.
"""

from capsjax.training import config as configs
from capsjax.training import optimizers


def get_config():
    config = configs.default(model="choi2019_affnist", data="affnist_generated")
    config.optimizer = optimizers.optimizer_options("rmsprop")
    config.schedule = optimizers.schedule_options("inverse_time")
    config.loss.reconstruction = "mean"
    config.loss.reconstruction_weight = 0.3
    config.training.batch_size = 100
    config.training.epochs = 20
    return config
