"""AR CapsNet on CIFAR-10 (Choi et al. 2019, table 1); …:plus for CIFAR-10+, augmented.

Networks of its table 2: --config.model.num_conv_caps=2 --config.model.pose_size=16.
"""

from capsjax.training import config as configs
from capsjax.training import optimizers


def get_config(which=""):
    if which not in ("", "plus"):
        raise ValueError(f"after the colon comes nothing or plus, got {which!r}")
    config = configs.default(model="choi2019_cifar10", data="cifar10")
    config.optimizer = optimizers.optimizer_options("rmsprop")
    config.schedule = optimizers.schedule_options("inverse_time")
    config.loss.reconstruction = "mean"
    config.loss.reconstruction_weight = 0.3
    config.training.batch_size = 100
    config.training.epochs = 200
    config.data.max_shift = 3 if which == "plus" else 0
    config.data.max_rotation = 20.0 if which == "plus" else 0.0
    config.data.flip = which == "plus"
    return config
