"""Two routings in a row (Lin et al. 2018, figures 2 and 3), five runs.

The paper varies --config.model.num_iterations (r; 3 here) and --config.model.update_rate (η; 1
here): at r = 6 η = 0.01 trains better than 1. …:lin2018_cnn is the network without capsules. The
paper gives no optimizer, batch size or length of training. Here the first two are those of Sabour
et al. 2017, and training takes 20 epochs.
"""

from capsjax.training import config as configs


def get_config(model="lin2018_capsnet"):
    config = configs.default(model=model, data="multimnist")
    config.seeds = 5
    config.training.epochs = 20
    if "cnn" in model:
        config.loss.name = "sigmoid_cross_entropy"
    return config
