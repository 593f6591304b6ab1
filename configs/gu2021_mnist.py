"""Semantic representations (Gu et al. 2021, section 3.3: table 5 and figure 4).

After the colon one of gu2021_convnet_r, gu2021_convnet_cr, gu2021_convnet_cr_sf, and
sabour2017_capsnet. Only the first has a linear classifier and so the cross-entropy; the others take
the margin loss. Digits are shifted by up to 2 pixels in training, as in Sabour et al. 2017; the
paper does not say. The paper gives no schedule: the rate is constant here.
"""

from capsjax.training import config as configs


def get_config(model="sabour2017_capsnet"):
    config = configs.default(model=model, data="mnist")
    config.seeds = 5
    config.schedule = configs.defaults("schedule", "constant")
    config.data.validation_fraction = 0.0
    if model == "gu2021_convnet_r":
        config.loss.name = "cross_entropy"
    return config
