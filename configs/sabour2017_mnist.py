"""CapsNet on MNIST (Sabour et al. 2017, table 1, the row with 3 iterations and reconstruction)."""

from capsjax.training import config as configs


def get_config():
    return configs.default(model="sabour2017_capsnet", data="mnist")
