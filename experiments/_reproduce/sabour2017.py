"""Dynamic routing between capsules (Sabour et al. 2017)."""

from dataclasses import replace

from _reproduce import figures, measures
from _reproduce.experiment import Claim, Column, Experiment, Published, Scale, Variant

CAPSNET = {"model.name": "sabour2017_capsnet"}
# The paper's baseline has these layers, with dropout, which this one has not.
CNN = {"model.name": "gu2021_convnet_fc", "loss.name": "cross_entropy"}
CNN_OF_TWO = CNN | {"loss.name": "sigmoid_cross_entropy"}

FULL = {"data.validation_fraction": 0.0}
SMALL = {"model.width": 1 / 8, "training.batch_size": 64, "training.log_every_steps": 50}
SMOKE = {
    "model.width": 1 / 32,
    "training.epochs": 1,
    "training.batch_size": 64,
}
ON_DIGITS = {"data.name": "digits"}
FROM_DIGITS = {"data.source": "digits"}

ABOUT_FULL = "The paper's recipe."
ABOUT_SMOKE = "Networks of 1/32 of the width, one epoch on scikit-learn's 1,797 digits."

MNIST = Experiment(
    title="Test error on MNIST in per cent (table 1)",
    recipe={"data.name": "mnist"},
    variants={
        "CNN": Variant(CNN),
        "1 iteration": Variant(
            CAPSNET | {"model.num_iterations": 1, "model.reconstruction": "none"}
        ),
        "1 iteration, reconstruction": Variant(CAPSNET | {"model.num_iterations": 1}),
        "3 iterations": Variant(CAPSNET | {"model.reconstruction": "none"}),
        "3 iterations, reconstruction": Variant(CAPSNET),
    },
    measure=measures.error(),
    columns=(
        Column(
            "error",
            "Test error, %",
            {
                "CNN": 0.39,
                "1 iteration": Published(0.34, 0.032, 3),
                "1 iteration, reconstruction": Published(0.29, 0.011, 3),
                "3 iterations": Published(0.35, 0.036, 3),
                "3 iterations, reconstruction": Published(0.25, 0.005, 3),
            },
            digits=3,
            tolerance=0.05,
        ),
    ),
    claims=(
        Claim(
            "reconstruction lowers the error (3 iterations)",
            "error",
            "3 iterations",
            "3 iterations, reconstruction",
        ),
        Claim(
            "with reconstruction 3 iterations beat 1",
            "error",
            "1 iteration, reconstruction",
            "3 iterations, reconstruction",
        ),
        Claim("CapsNet beats the CNN", "error", "CNN", "3 iterations, reconstruction"),
    ),
    scales={
        "full": Scale(ABOUT_FULL + " 50 epochs.", FULL, seeds=3),
        "small": Scale(
            "1/8 of the width, batches of 64; a tenth of the training images held out, 1 epoch of "
            "40 % of the others.",
            SMALL | {"data.train_fraction": 0.4, "training.epochs": 1},
        ),
        "smoke": Scale(
            ABOUT_SMOKE,
            SMOKE | ON_DIGITS,
            only=("CNN", "1 iteration", "3 iterations, reconstruction"),
        ),
    },
    notes="The CNN has the paper's layers but no dropout, and takes the cross-entropy. The paper "
    "does not say for how long it trains.",
)

MULTIMNIST = Experiment(
    title="Test error on MultiMNIST in per cent (table 1)",
    recipe={"data.name": "multimnist"},
    variants={"CNN": Variant(CNN_OF_TWO), "CapsNet": Variant(CAPSNET)},
    measure=measures.error(),
    columns=(Column("error", "Test error, %", {"CNN": 8.1, "CapsNet": 5.2}),),
    claims=(Claim("CapsNet beats the CNN", "error", "CNN", "CapsNet"),),
    scales={
        "full": Scale(
            ABOUT_FULL + " 1,000 images per digit to train on; 50 epochs.",
            FULL | {"data.versions": 1000, "data.test_versions": 100},
            seeds=3,
        ),
        "small": Scale(
            "1/16 of the width, 4 epochs, batches of 64, new images without end.",
            SMALL | {"model.width": 1 / 16, "training.epochs": 4},
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE | FROM_DIGITS),
    },
    notes="The paper's CNN for this task has other layers (512 and 256 channels with pooling, 1024 "
    "units, 24.56M parameters); ConvNet-FC stands in for it. Each test digit is used 100 times, "
    "not 1,000.",
)

AFFNIST = Experiment(
    title="Accuracy on affNIST, trained on translated MNIST (section 5.3)",
    recipe={"data.name": "affnist_generated"},
    variants={"CNN": Variant(CNN), "CapsNet": Variant(CAPSNET)},
    measure=measures.accuracy(affnist="test", mnist="test_translated"),
    columns=(
        Column("affnist", "affNIST (generated), accuracy, %", {"CNN": 66.0, "CapsNet": 79.0}),
        Column("mnist", "translated MNIST, accuracy, %", {"CNN": 99.22, "CapsNet": 99.23}),
    ),
    claims=(Claim("CapsNet is more robust than the CNN", "affnist", "CapsNet", "CNN"),),
    scales={
        "full": Scale(
            ABOUT_FULL + " Each network stops at the end of the first epoch with "
            "99.23 % on held-out translated digits, a tenth of the training images, at the latest "
            "after 50.",
            {"training.stop_at_accuracy": 0.9923},
            seeds=3,
        ),
        "small": Scale(
            "1/16 of the width, batches of 64, epochs of a quarter of the images; each network "
            "stops at the end of the first one with 94 % on held-out translated digits, at the "
            "latest after 16. One version of each test digit.",
            SMALL
            | {
                "model.width": 1 / 16,
                "training.epochs": 16,
                "training.stop_at_accuracy": 0.94,
                "data.train_fraction": 0.25,
                "data.test_versions": 1,
            },
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE | FROM_DIGITS | {"data.test_versions": 1}),
    },
    notes="The CNN has no dropout. affNIST is generated (docs/data.md).",
)

PERTURBATION = Experiment(
    title="Reconstructions as one element of the pose moves by −0.25 … 0.25 (figure 4)",
    recipe={"data.name": "mnist"},
    # The same network as a row of the table: it is trained once.
    variants={"3 iterations, reconstruction": Variant(CAPSNET)},
    measure=measures.perturbation(0.25, 0.05),
    columns=(Column("mean change of a pixel", "Mean range of a pixel, of 1", digits=4),),
    scales={
        name: replace(scale, seeds=1, images=1000, only=()) for name, scale in MNIST.scales.items()
    },
    figure=figures.sheets,
    notes="what each element means is judged by eye.",
)

EXPERIMENTS = {
    "mnist": MNIST,
    "multimnist": MULTIMNIST,
    "affnist": AFFNIST,
    "perturbation": PERTURBATION,
}
