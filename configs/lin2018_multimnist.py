"""Two routings in a row (Lin et al. 2018, figures 2 and 3), five runs.

The paper varies --config.model.num_iterations (r) and --config.model.update_rate (η); here r = 6
with the η = 0.01 that trained best. …:lin2018_cnn is the network without capsules. It gives neither
optimizer nor batch size: those of Sabour et al. 2017.
"""

from capsjax.training import config as configs


def get_config(model="lin2018_capsnet"):
    config = configs.default(model=model, data="multimnist")
    config.seeds = 5
    if "capsnet" in model:
        config.model.num_iterations = 6
        config.model.update_rate = 0.01
    else:
        config.loss.name = "sigmoid_cross_entropy"
    return config
