"""Transformation robustness (Gu et al. 2021, table 1): MNIST placed at random, tested on affNIST.

Any of its networks: --config=configs/gu2021_affnist.py:gu2021_aff_capsnet. Training stops at
99.22 % on held-out placed digits; table 2 trains to the end, on all images:
--config.training.stop_at_accuracy=0 --config.data.validation_fraction=0
After training: python experiments/evaluate.py --checkpoint=RUN/seed_0.

The paper gives no schedule: the rate is constant here.
"""

from capsjax.training import config as configs


def get_config(model="gu2021_capsnet"):
    config = configs.default(model=model, data="affnist_generated")
    config.seeds = 5
    config.schedule = configs.defaults("schedule", "constant")
    config.training.stop_at_accuracy = 0.9922
    if model in ("gu2021_convnet_avg", "gu2021_convnet_fc", "gu2021_convnet_fc_lk"):
        config.loss.name = "cross_entropy"
    return config
