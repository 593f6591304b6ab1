"""Learning and learned data representation by capsule networks (Lin et al. 2018)."""

from _reproduce import figures, measures
from _reproduce.experiment import Claim, Column, Experiment, Scale, Variant
from capsjax.analysis.transfer import SCHEMES, lower_layers

RUNS = 5
# Every epoch's checkpoint, for the trace of the entropy.
RECIPE = {
    "data.name": "multimnist",
    "model.name": "lin2018_capsnet",
    "training.epochs": 20,
    "checkpoints.keep": 1000,
}
SMALL = {
    "model.width": 1 / 16,
    "training.epochs": 3,
    "training.batch_size": 64,
    "training.log_every_steps": 50,
}
# 16 middle capsules: with 2 there would be little to route.
SMALL_ROUTING = SMALL | {
    "model.middle_capsules": (256,),
    # Short epochs: the entropy is measured after each.
    "data.train_fraction": 0.25,
    "training.epochs": 4,
}
SMOKE = {
    "model.width": 1 / 16,
    "model.kernel_size": 5,
    "data.source": "digits",
    "training.epochs": 2,
    "training.batch_size": 64,
}
ABOUT_FULL = "Networks of the paper's structure; it does not say for how long: 20 epochs."
ABOUT_SMALL = "1/16 of the width, batches of 64"
ABOUT_SMOKE = "1/16 of the width, 5×5 kernels, two epochs of scikit-learn's 1,797 digits."
NOTES = (
    "sizes, optimizer and length of training (docs/models.md): CapsNet's sizes and recipe; new "
    "images without end, not the paper's 30,889."
)


def _routing(r: int, rate: float = 1.0) -> dict:
    return {"model.num_iterations": r, "model.update_rate": rate}


ITERATIONS = {
    f"r = {r}": Variant(_routing(r), line="iterations (η = 1)", x=r) for r in (1, 2, 3, 5, 7)
}
RATES = {
    f"r = 6, η = {rate:g}": Variant(_routing(6, rate), line="update rates (r = 6)", x=rate)
    for rate in (1.0, 0.1, 0.05, 0.01)
}

FIGURE_2 = Experiment(
    title="Accuracy during training, for iterations and update rates (figure 2)",
    recipe=RECIPE,
    variants=ITERATIONS | RATES,
    measure=measures.accuracy(accuracy="test"),
    columns=(Column("accuracy", "MultiMNIST, accuracy at the end, %"),),
    claims=(
        Claim("too many iterations harm", "accuracy", "r = 3", "r = 7"),
        Claim("a soft update helps", "accuracy", "r = 6, η = 0.01", "r = 6, η = 1"),
    ),
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS),
        "small": Scale(
            f"{ABOUT_SMALL}, 4 epochs of a quarter of the digits, 16 middle capsules; six of the "
            "nine settings.",
            SMALL_ROUTING,
            only=("r = 1", "r = 3", "r = 7", "r = 6, η = 1", "r = 6, η = 0.1", "r = 6, η = 0.01"),
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE, only=("r = 6, η = 1", "r = 6, η = 0.01")),
    },
    figure=figures.curves("training steps", "training", "steps", "training accuracy, %"),
    notes=NOTES
    + " Curves are on the training images, which are new in every step. The figure has no "
    "printed numbers.",
)

# The runs of figure 2.
FIGURE_3 = Experiment(
    title="Entropy of the first routing's couplings during training (figure 3)",
    recipe=RECIPE,
    variants=RATES | {"r = 7": ITERATIONS["r = 7"]},
    measure=measures.several(
        measures.entropy_trace("capsules1"), measures.accuracy(accuracy="test")
    ),
    columns=(
        Column("entropy at the end", "Mean entropy at the end, nats", digits=3),
        Column("accuracy", "MultiMNIST, accuracy at the end, %"),
    ),
    claims=(
        Claim(
            "a soft update keeps the entropy higher",
            "entropy at the end",
            "r = 6, η = 0.01",
            "r = 6, η = 1",
        ),
    ),
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS),
        "small": Scale(
            f"{ABOUT_SMALL}, 4 epochs of a quarter of the digits, 16 middle capsules; entropies of "
            "1,000 test images.",
            SMALL_ROUTING,
            images=1000,
            only=("r = 6, η = 1", "r = 6, η = 0.1", "r = 6, η = 0.01", "r = 7"),
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE, images=64, only=("r = 6, η = 1", "r = 6, η = 0.01")),
    },
    figure=figures.beside(
        figures.curves_panel("entropy steps", "entropy", "steps", "mean entropy, nats"),
        figures.trace_panel("entropy", "validation", "mean entropy, nats", "accuracy, %"),
    ),
    notes=NOTES + " The printed formula's extra 1/J is left out.",
)

# t-SNE is of 81 images each; all 90 ordered pairs of classes at full scale.
MANIFOLD = Experiment(
    title="Chamfer distance of the embedded representation to the grid of shifts (section 3.2)",
    recipe=RECIPE,
    variants={
        "CapsNet": Variant(),
        "CNN": Variant({"model.name": "lin2018_cnn", "loss.name": "sigmoid_cross_entropy"}),
    },
    measure=measures.several(measures.grid_distances(), measures.accuracy(accuracy="test")),
    columns=(
        Column(
            "Chamfer distance",
            "Chamfer distance, px",
            {"CapsNet": 0.313, "CNN": 0.394},
            digits=3,
            tolerance=0.05,
        ),
        Column("variance", "Its variance over pairs", {"CapsNet": 0.010, "CNN": 0.025}, digits=3),
        Column("accuracy", "MultiMNIST, accuracy, %"),
    ),
    claims=(Claim("CapsNet is nearer to the grid", "Chamfer distance", "CNN", "CapsNet"),),
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS, images=90 * 81),
        "small": Scale(
            f"{ABOUT_SMALL}, 3 epochs; 20 pairs of digits.", SMALL, seeds=3, images=20 * 81
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE, images=81),
    },
    figure=figures.scatters,
    notes=NOTES + " The embedding is fitted to the grid as a whole (Procrustes); the distance is "
    "the mean of both directions, not squared, in pixels. The CNN takes the binary cross-entropy.",
)

NETWORKS = {
    "CapsNet": {"model.name": "lin2018_capsnet_deeper"},
    "CNN": {"model.name": "lin2018_cnn_deeper", "loss.name": "sigmoid_cross_entropy"},
}
TESTS = ("B", *SCHEMES)


def _domain(letter: str) -> dict:
    return {"data.name": f"multimnist_{letter.lower()}"}


def _transfer(line: str, network: dict) -> dict[str, Variant]:
    """Training on B alone, then the tests, which begin with layers of a network of A or B."""
    variants = {f"{line}, B": Variant(network | _domain("B"), line=line)}
    for x, (test, scheme) in enumerate(SCHEMES.items(), start=1):
        layers = lower_layers(network["model.name"], scheme.num_kept)
        variants[f"{line}, {test}"] = Variant(
            network | _domain(scheme.target) | {"init_layers": layers, "frozen_layers": layers},
            pretrained=network | _domain(scheme.source),
            line=line,
            x=x,
        )
    return variants


FIGURE_7 = Experiment(
    title="Accuracy on domain B with lower layers kept from A or B (figure 7)",
    recipe=RECIPE | {"checkpoints.keep": 2},
    variants={
        name: variant
        for line, network in NETWORKS.items()
        for name, variant in _transfer(line, network).items()
    },
    measure=measures.accuracy(accuracy="test"),
    columns=(Column("accuracy", "MultiMNIST, domain B, accuracy, %"),),
    claims=(
        *(
            Claim(f"{test}: CapsNet beats the CNN", "accuracy", f"CapsNet, {test}", f"CNN, {test}")
            for test in SCHEMES
        ),
        *(Claim(f"{test} harms the CNN", "accuracy", "CNN, B", f"CNN, {test}") for test in SCHEMES),
    ),
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS),
        "small": Scale(
            f"{ABOUT_SMALL}, 4 epochs of half of the digits.",
            SMALL | {"data.train_fraction": 0.5, "training.epochs": 4},
        ),
        "smoke": Scale(
            ABOUT_SMOKE, SMOKE, only=("CapsNet, B", "CapsNet, A2B", "CNN, B", "CNN, A1B")
        ),
    },
    figure=figures.bars("accuracy", TESTS, "accuracy on B, %"),
    notes=NOTES + " A1B keeps one layer that was trained on A and trains the two others anew on B, "
    "for as many epochs; of B1B and B2B the first training is row B of the same run. No numbers "
    "are printed in the figure.",
)

EXPERIMENTS = {
    "figure2": FIGURE_2,
    "figure3": FIGURE_3,
    "manifold": MANIFOLD,
    "figure7": FIGURE_7,
}
