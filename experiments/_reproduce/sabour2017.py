"""Dynamic routing between capsules (Sabour et al. 2017)."""

from dataclasses import replace

from _reproduce import figures, measures
from _reproduce.experiment import Claim, Column, Estimate, Experiment, Scale, Variant

FULL = {"data.validation_fraction": 0.0}
SMALL = {"model.width": 1 / 8, "training.batch_size": 64, "training.log_every_steps": 50}
MEDIUM = {"model.width": 1 / 4, "training.epochs": 20, "training.log_every_steps": 50}
SMOKE = {"model.width": 1 / 32, "training.epochs": 1, "training.batch_size": 64}
ON_DIGITS = {"data.name": "digits"}
FROM_DIGITS = {"data.source": "digits"}
# What the config of sabour2017/multimnist says at full scale and other scales do not.
ENDLESS = {"data.validation_fraction": 0.1, "data.versions": 0, "data.test_versions": 1}

ABOUT_FULL = "The paper's recipe."
ABOUT_SMOKE = "Networks of 1/32 of the width, one epoch on scikit-learn's 1,797 digits."

MNIST = Experiment(
    title="Test error on MNIST in per cent (table 1)",
    variants={
        "CNN": Variant("sabour2017_mnist:cnn"),
        "1 iteration": Variant(
            "sabour2017_mnist", {"model.num_iterations": 1, "model.reconstruction": "none"}
        ),
        "1 iteration, reconstruction": Variant("sabour2017_mnist", {"model.num_iterations": 1}),
        "3 iterations": Variant("sabour2017_mnist", {"model.reconstruction": "none"}),
        "3 iterations, reconstruction": Variant("sabour2017_mnist"),
    },
    measure=measures.error(),
    columns=(
        Column(
            "error",
            "Test error, %",
            {
                "CNN": 0.39,
                "1 iteration": Estimate(0.34, 0.032, 3),
                "1 iteration, reconstruction": Estimate(0.29, 0.011, 3),
                "3 iterations": Estimate(0.35, 0.036, 3),
                "3 iterations, reconstruction": Estimate(0.25, 0.005, 3),
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
    untested={
        "state of the art on MNIST": "a comparison with networks that are not in the paper",
        "it needs less training data": "listed as an advantage, without a measurement",
        "it is slow, not the best on CIFAR-10, may fail on large images and on two identical "
        "objects side by side, and promises well for segmentation and detection": "listed likewise",
    },
    scales={
        "full": Scale(f"{ABOUT_FULL} 50 epochs.", FULL, seeds=3),
        "medium": Scale("1/4 of the width, 20 epochs of all images.", FULL | MEDIUM, seeds=3),
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
    chosen=("the length of training", "the cross-entropy for the CNN"),
    different=("the CNN has the paper's layers but no dropout",),
)

MULTIMNIST = Experiment(
    title="Test error on MultiMNIST in per cent (table 1)",
    variants={
        "CNN": Variant("sabour2017_multimnist:cnn"),
        "CapsNet": Variant("sabour2017_multimnist"),
    },
    measure=measures.error(),
    columns=(Column("error", "Test error, %", {"CNN": 8.1, "CapsNet": 5.2}),),
    claims=(Claim("CapsNet beats the CNN", "error", "CNN", "CapsNet"),),
    scales={
        "full": Scale(
            f"{ABOUT_FULL} 60M images, 1,000 of each first digit, one of each in an epoch, for "
            "1,000 epochs.",
            seeds=3,
        ),
        "small": Scale(
            "1/16 of the width, 4 epochs, batches of 64, new images without end.",
            SMALL | ENDLESS | {"model.width": 1 / 16, "training.epochs": 4},
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE | ENDLESS | FROM_DIGITS),
    },
    chosen=(
        "as many epochs as there are images of each first digit; the last, incomplete batch of an "
        "epoch, 0.16 % of the images, is left out",
        "padding in the CNN: with it, it has the printed 24.56M parameters",
    ),
    different=("each test digit is used 100 times, not 1,000",),
)

AFFNIST = Experiment(
    title="Accuracy on affNIST, trained on translated MNIST (section 5.2)",
    variants={
        "CNN": Variant("sabour2017_affnist:cnn"),
        "CapsNet": Variant("sabour2017_affnist"),
    },
    measure=measures.accuracy(affnist="test", mnist="test_translated"),
    columns=(
        Column("affnist", "affNIST (generated), accuracy, %", {"CNN": 66.0, "CapsNet": 79.0}),
        Column("mnist", "translated MNIST, accuracy, %", {"CNN": 99.22, "CapsNet": 99.23}),
    ),
    claims=(Claim("CapsNet is more robust than the CNN", "affnist", "CapsNet", "CNN"),),
    scales={
        "full": Scale(
            f"{ABOUT_FULL} Each network stops at the end of the first epoch with 99.23 % on "
            "held-out translated digits, a tenth of the training images, or after 50.",
            seeds=3,
        ),
        "medium": Scale(
            "1/8 of the width, batches of 64; each network stops at the end of the first epoch "
            "with 99.0 % on held-out translated digits, or after 50. One version of each test "
            "digit.",
            SMALL | {"training.stop_at_accuracy": 0.99, "data.test_versions": 1},
            seeds=3,
        ),
        "small": Scale(
            "1/16 of the width, batches of 64, epochs of a quarter of the images; each network "
            "stops at the end of the first one with 94 % on held-out translated digits, or after "
            "16. One version of each test digit.",
            SMALL
            | {
                "model.width": 1 / 16,
                "training.epochs": 16,
                "training.stop_at_accuracy": 0.94,
                "data.train_fraction": 0.25,
                "data.test_versions": 1,
            },
        ),
        "smoke": Scale(
            ABOUT_SMOKE,
            SMOKE | FROM_DIGITS | {"data.test_versions": 1, "training.stop_at_accuracy": 0.0},
        ),
    },
    different=("the CNN has no dropout", "affNIST is generated (docs/data.md)"),
)

# The same network as a row of the table: it is trained once.
ONE_NETWORK = {"3 iterations, reconstruction": Variant("sabour2017_mnist")}
LOOKS = {
    name: replace(scale, seeds=1, images=1000, only=()) for name, scale in MNIST.scales.items()
}

RECONSTRUCTIONS = Experiment(
    title="Reconstructions with (label, prediction, target) (figure 3)",
    variants=ONE_NETWORK,
    measure=measures.reconstructions(),
    columns=(
        Column(
            "squared error of a pixel", "Squared error of a pixel, first 1,000 images", digits=4
        ),
    ),
    untested={
        "reconstructions keep the details and smooth the noise": "judged by eye",
        "overlapping digits are told apart by their reconstructions": "judged by eye; shown for "
        "MNIST only",
    },
    scales=LOOKS,
    figure=figures.pairs,
    chosen=("the first five images that are classified correctly, and the first two that are not",),
)

PERTURBATION = Experiment(
    title="Reconstructions as one element of the pose moves by −0.25 … 0.25 (figure 4)",
    variants=ONE_NETWORK,
    measure=measures.perturbation(0.25, 0.05),
    columns=measures.RANGE_OF_A_PIXEL,
    untested={
        "almost every dimension is a way to vary the digit (width, thickness, a part)": "judged by "
        "eye; the range of a pixel tells only how much changes"
    },
    scales=LOOKS,
    figure=figures.sheets,
)

EXPERIMENTS = {
    "mnist": MNIST,
    "multimnist": MULTIMNIST,
    "affnist": AFFNIST,
    "reconstructions": RECONSTRUCTIONS,
    "perturbation": PERTURBATION,
}
