"""One or two overlapping digits (Tsai et al. 2020, figure 5).

Any of its networks: --config=configs/tsai2020_diverse.py:tsai2020_diverse_matrix. The paper's 350
rounds of 60,000 generated images are 350 epochs here, of one new image per training digit. As in
the paper, nothing is held out, and all networks use the same optimizer. The paper does not say
whether the binary cross-entropy is summed or averaged over the classes; here it is averaged, as a
narrow network diverges with the sum at the paper's rate.
"""

from capsjax.training import config as configs


def get_config(model="tsai2020_diverse_vector"):
    config = configs.default(model=model, data="diverse_multimnist")
    config.data.validation_fraction = 0.0
    config.loss.name, config.loss.classes = "sigmoid_cross_entropy", "mean"
    if "_dynamic_" in model:
        config.model.num_iterations = 1
    config.optimizer = configs.defaults("optimizer", "sgd", learning_rate=0.1, weight_decay=5e-4)
    config.schedule = configs.defaults("schedule", "steps", epochs=(150, 250))
    config.training.epochs = 350
    return config
