"""Efficient-CapsNet (Mazzia et al. 2021) on MNIST, with the recipe and distortions of its code.

…:multimnist is its network for two overlapping digits. The best epoch is chosen by a tenth of the
training images, held out; the released code chooses it by the test images. Batches of 16 are the
paper's; on a CPU, batches of 64 with --config.optimizer.learning_rate=1e-3 take less time.
"""

from capsjax.training import config as configs

DATA = {"mnist": "mnist_distorted", "multimnist": "multimnist"}


def get_config(which="mnist"):
    if which not in DATA:
        raise ValueError(f"after the colon comes {' or '.join(DATA)}, got {which!r}")
    config = configs.default(model=f"efficient_capsnet_{which}", data=DATA[which])
    config.loss.reconstruction, config.loss.reconstruction_weight = "mean", 0.392
    if which == "multimnist":
        config.data.max_shift = 6
        config.loss.reconstruction_weight = 0.392 / 2  # of each digit
    config.optimizer = configs.defaults("optimizer", "adam", learning_rate=5e-4)
    # Down to a tenth.
    config.schedule = configs.defaults("schedule", "steps", epochs=tuple(range(1, 76)), factor=0.97)
    config.training.epochs = 150
    config.training.batch_size = 16
    return config
