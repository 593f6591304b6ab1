"""AR CapsNet on MNIST (Choi et al. 2019, table 1); …:plus for MNIST+, shifted by a tenth."""

from capsjax.training import config as configs
from capsjax.training import optimizers


def get_config(which=""):
    if which not in ("", "plus"):
        raise ValueError(f"after the colon comes nothing or plus, got {which!r}")
    config = configs.default(model="choi2019_mnist", data="mnist")
    config.optimizer = optimizers.optimizer_options("rmsprop")
    config.schedule = optimizers.schedule_options("inverse_time")
    config.loss.reconstruction = "mean"
    config.loss.reconstruction_weight = 0.3
    config.training.batch_size = 100
    config.training.epochs = 20
    config.data.max_shift = 3 if which == "plus" else 0
    return config
