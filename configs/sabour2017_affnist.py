"""CapsNet on translated MNIST, tested on affNIST (Sabour et al. 2017, section 5.3).

After training: python experiments/evaluate.py --checkpoint=RUN (affine transformed test digits),
and with --split=test_translated.
"""

from capsjax.training import config as configs


def get_config():
    return configs.default(model="sabour2017_capsnet", data="affnist_generated")
