"""CapsNet on two overlapping digits (Sabour et al. 2017, section 6).

Each is reconstructed alone, with the other's pose masked out.
"""

from capsjax.training import config as configs


def get_config():
    return configs.default(model="sabour2017_capsnet", data="multimnist")
