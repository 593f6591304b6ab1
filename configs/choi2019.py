"""AR CapsNet and the CapsNet beside it (Choi et al. 2019, table 1).

After the colon: mnist, mnist_plus (shifted by a tenth), affnist (translated MNIST, tested on
affNIST), cifar10, or cifar10_plus (augmented). Append ,capsnet for CapsNet, with the recipe of the
Keras implementation that the paper names and as many epochs. affNIST's shift of 0.2 is at most 5.6
pixels of a digit; here it is 6, which fills the canvas of 40.
Networks of table 2: --config=configs/choi2019.py:cifar10 --config.model.num_conv_caps=2
--config.model.pose_size=16.
"""

from capsjax.training import config as configs

DATA = {"mnist": "mnist", "affnist": "affnist_generated", "cifar10": "cifar10"}


def get_config(which="mnist"):
    task, _, kind = which.partition(",")
    name, plus, rest = task.partition("_plus")
    if name not in DATA or rest or (plus and name == "affnist") or kind not in ("", "capsnet"):
        raise ValueError(
            "after the colon comes mnist, mnist_plus, affnist, cifar10 or cifar10_plus, and "
            f",capsnet for CapsNet; got {which!r}"
        )
    network = "sabour2017_capsnet" if kind else f"choi2019_{name}"
    config = configs.default(model=network, data=DATA[name])
    config.training.epochs = 200 if name == "cifar10" else 20
    config.training.batch_size = 100
    config.loss.reconstruction = "mean"
    if kind:
        each = tuple(range(1, config.training.epochs))
        config.schedule = configs.defaults("schedule", "steps", epochs=each, factor=0.9)
        config.loss.reconstruction_weight = 0.392
    else:
        config.optimizer = configs.defaults("optimizer", "rmsprop")
        config.schedule = configs.defaults("schedule", "inverse_time")
        config.loss.reconstruction_weight = 0.3
    if name == "affnist":
        config.data.affine_validation = True
    else:
        config.data.max_shift = 3 if plus else 0
    if name == "cifar10":
        config.data.max_rotation = 20.0 if plus else 0.0
        config.data.flip = bool(plus)
    return config
