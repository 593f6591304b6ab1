"""Pictures of your own, one subfolder per class: --config.data.name=folder:PATH.

Sixty pictures take four minutes on two cores. …:96 makes them 96×96 pixels instead of 64×64. The
network is not from a paper (capsjax/models/pictures.py). The weight of the reconstruction is that
of Sabour et al. 2017 for MNIST, 0.0005 · 784, whatever the size of the image.
"""

from capsjax.training import config as configs


def get_config(size="64"):
    if size not in ("64", "96"):
        raise ValueError(f"after the colon comes 64 or 96, got {size!r}")
    config = configs.default(model=f"picture_capsnet_{size}", data="folder:")
    config.data.size, config.data.channels = int(size), 3
    config.data.max_shift = 4
    config.data.flip = True
    config.loss.reconstruction, config.loss.reconstruction_weight = "mean", 0.392
    config.training.epochs = 30
    config.training.batch_size = 32
    return config
