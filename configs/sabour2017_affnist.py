"""CapsNet on translated MNIST, tested on affNIST (Sabour et al. 2017, section 5.2).

…:cnn is the CNN beside it, with the cross-entropy and without the paper's dropout. Training stops
at 99.23 % on held-out translated digits.
After training: python experiments/evaluate.py --checkpoint=RUN (affine transformed test digits),
and with --split=test_translated.
"""

from capsjax.training import config as configs

NETWORKS = {"capsnet": "gu2021_capsnet", "cnn": "gu2021_convnet_fc"}


def get_config(network="capsnet"):
    if network not in NETWORKS:
        raise ValueError(f"after the colon comes {' or '.join(NETWORKS)}, got {network!r}")
    config = configs.default(model=NETWORKS[network], data="affnist_generated")
    config.training.stop_at_accuracy = 0.9923
    if network == "cnn":
        config.loss.name = "cross_entropy"
    return config
