"""CapsNet on two overlapping digits (Sabour et al. 2017, section 6).

Each is reconstructed alone, with the other's pose masked out. 60M images, 1,000 of each first
digit: an epoch shows one of each, so 1,000 epochs go through them once (but for the last,
incomplete batch of each). Tested on 100 images of each first test digit (the paper: 1,000). …:cnn
is the paper's CNN.
"""

from capsjax.training import config as configs

NETWORKS = {"capsnet": "sabour2017_capsnet", "cnn": "sabour2017_cnn_multimnist"}


def get_config(network="capsnet"):
    if network not in NETWORKS:
        raise ValueError(f"after the colon comes {' or '.join(NETWORKS)}, got {network!r}")
    config = configs.default(model=NETWORKS[network], data="multimnist")
    config.data.validation_fraction = 0.0
    config.data.versions = 1000
    config.data.test_versions = 100
    config.training.epochs = 1000
    config.schedule.decay_steps = 20_000  # ten times the period for MNIST
    if network == "cnn":
        config.loss.name = "sigmoid_cross_entropy"
    return config
