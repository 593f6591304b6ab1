"""Lower layers kept from another domain of digit pairs, the others trained anew on B.

Lin et al. 2018, figure 7. The tests A1B and A2B keep layers that were trained on A, B1B and B2B
layers that were trained on B:

  python experiments/train.py --config=configs/lin2018_transfer.py:A --workdir=runs/a
  python experiments/train.py --config=configs/lin2018_transfer.py:A2B --workdir=runs/a2b \\
      --config.init_from=runs/a

and with :B and :B2B for the other; the CNN with --config=configs/lin2018_transfer.py:A2B,cnn.
The paper does not say for how long it trains: 20 epochs, each time.
"""

from capsjax.evaluation.transfer import SCHEMES, lower_layers
from capsjax.training import config as configs


def get_config(which="A"):
    test, _, kind = which.partition(",")
    if test not in ("A", "B", *SCHEMES) or kind not in ("", "capsnet", "cnn"):
        raise ValueError(
            f"after the colon comes A, B or one of {', '.join(SCHEMES)}, and ,cnn for the CNN; got "
            f"{which!r}"
        )
    model = f"lin2018_{kind or 'capsnet'}_deeper"
    config = configs.default(model=model, data=f"multimnist_{test[-1].lower()}")
    config.training.epochs = 20
    if kind == "cnn":
        config.loss.name = "sigmoid_cross_entropy"
    if test in SCHEMES:
        layers = lower_layers(model, int(test[1]))
        config.init_layers = layers
        config.frozen_layers = layers
    return config
