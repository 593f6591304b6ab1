"""Overlapping digits (Gu et al. 2021, table 4 and figure 3): 6M images, 100 of each first digit.

Any of its networks: --config=configs/gu2021_multimnist.py:gu2021_convnet_fc_lk. An epoch shows one
image of each first digit, so 100 epochs go through the 6M once (but for the last, incomplete batch
of each). To change their number, set both options: --config.data.versions=1000
--config.training.epochs=1000.

The paper gives no schedule: the rate is constant here.
"""

from capsjax.training import config as configs


def get_config(model="gu2021_capsnet"):
    config = configs.default(model=model, data="multimnist")
    config.seeds = 5
    config.schedule = configs.defaults("schedule", "constant")
    config.data.validation_fraction = 0.0
    config.data.versions = 100
    config.training.epochs = 100
    if "convnet" in model:
        config.loss.name = "sigmoid_cross_entropy"
    return config
