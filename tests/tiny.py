"""A run of seconds on real digits."""

from capsjax.training import config as configs


def tiny_config(npz):
    """180 training images of 8×8, batches of 24, seven steps an epoch, two epochs."""
    config = configs.default("sabour2017_capsnet", f"npz:{npz}")
    config.model.kernel_size = 3
    config.model.width = 1 / 32
    config.data.max_shift = 1
    config.training.batch_size = 24
    config.training.epochs = 2
    config.training.log_every_steps = 3
    return config
