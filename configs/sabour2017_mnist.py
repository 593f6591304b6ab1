"""CapsNet on MNIST (Sabour et al. 2017, table 1, the row with 3 iterations and reconstruction).

…:cnn is the CNN beside it, without the paper's dropout; padded, it has the paper's 35.4M
parameters. A tenth of the images is held out; the paper trains on all of them:
--config.data.validation_fraction=0
"""

from capsjax.training import config as configs

NETWORKS = {"capsnet": "sabour2017_capsnet", "cnn": "gu2021_convnet_fc"}


def get_config(network="capsnet"):
    if network not in NETWORKS:
        raise ValueError(f"after the colon comes {' or '.join(NETWORKS)}, got {network!r}")
    config = configs.default(model=NETWORKS[network], data="mnist")
    if network == "cnn":
        config.loss.name = "cross_entropy"
        config.model.padding = "SAME"
    return config
