"""A narrow CapsNet on scikit-learn's 1,797 handwritten digits: two minutes on two cores."""

from capsjax.training import config as configs


def get_config():
    config = configs.default(model="sabour2017_capsnet", data="digits")
    config.model.width = 0.25
    config.training.epochs = 20
    config.training.batch_size = 32
    config.training.log_every_steps = 10
    return config
