"""Learning and learned data representation by capsule networks (Lin et al. 2018)."""

from dataclasses import replace
from typing import Any

from _reproduce import figures, measures
from _reproduce.compare import drop
from _reproduce.experiment import Column, Experiment, Floor, Row, Scale, claims

from papers.sabour2017 import EIGHT_EPOCHS

FINDING = (
    "in part: three routing iterations beat one (73.1 against 68.6 % on overlapping digits), and "
    "where training fails with six (14 %), a softer update of the couplings repairs it (71 %)."
)

RUNS = 5
# For the traces of entropy and test accuracy.
KEEP_ALL = {"checkpoints.keep": 1000}
NARROW = {"model.width": 1 / 16, "training.batch_size": 64}
SMALL = NARROW | {"training.epochs": 3, "training.log_every_steps": 50}
# Short epochs: the entropy is measured after each.
SHORT = SMALL | {"data.train_fraction": 0.25, "training.epochs": 4}
# 16 middle capsules: with 2 there would be little to route.
SMALL_ROUTING = SHORT | {"model.middle_capsules": (256,)}
MEDIUM = replace(EIGHT_EPOCHS, about=f"{EIGHT_EPOCHS.about} 4 middle capsules.", images=20 * 81)
SMOKE = NARROW | {"model.kernel_size": 5, "data.source": "digits", "training.epochs": 2}
ABOUT_FULL = "Networks of the paper's structure, for 20 epochs; the paper gives no number."
ABOUT_SMALL = "1/16 of the width, batches of 64"
ABOUT_SMOKE = "1/16 of the width, 5×5 kernels, two epochs of scikit-learn's 1,797 digits."
CHOSEN = (
    "sizes, optimizer and length of training: CapsNet's sizes and recipe, at full scale 20 epochs "
    "(docs/models_choices.md)",
    "couplings start at 1/J in every forward pass (c_old of the first iteration)",
    "no decoder",
)
DIFFERENT = ("unlimited new images, not the paper's 30,889, and 10,000 test images, not 4,738",)
# Both digits right; by chance 2.2 %.
LEARNED = Floor("accuracy", 30.0)
ACCURACY = Column("accuracy", "MultiMNIST, accuracy, %", best=100)


def _routing(r: int, rate: float = 1.0, **where: Any) -> Row:
    name = f"r = {r}, η = {rate:g}" if r == 6 else f"r = {r}"
    changes = KEEP_ALL | {"model.num_iterations": r, "model.update_rate": rate}
    return Row(name, "lin2018_multimnist", changes, **where)


ITERATIONS = tuple(_routing(r, line="iterations (η = 1)", x=r) for r in (1, 2, 3, 5, 7))
RATES = tuple(
    _routing(6, rate, line="update rates (r = 6)", x=rate) for rate in (1.0, 0.1, 0.05, 0.01)
)

HARD, SOFT = "r = 6, η = 1", "r = 6, η = 0.01"
R7, R7_UNTRAINED = "r = 7", "r = 7, untrained"

FIGURE_2 = Experiment(
    title="Accuracy during training, for iterations and update rates (figure 2)",
    rows=ITERATIONS + RATES,
    measure=measures.all_of(measures.TESTED, measures.test_curve),
    columns=(ACCURACY,),
    floor=LEARNED,
    # They are about training itself: a network that did not learn is what is claimed.
    claims=claims(
        "accuracy",
        ("three iterations are better than one", "r = 3", "r = 1", "r = 3"),
        ("too many iterations harm", "r = 3", R7, R7),
        ("a soft update helps", SOFT, HARD, HARD),
        any_accuracy=True,
    ),
    untested={
        "training saturates at a small number of iterations": "no threshold is given; seen in the "
        "curves"
    },
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS),
        "medium": MEDIUM,
        "small": Scale(
            f"{ABOUT_SMALL}, 4 epochs of a quarter of the digits, 16 middle capsules; six of the "
            "nine settings.",
            SMALL_ROUTING,
            only=("r = 1", "r = 3", R7, HARD, "r = 6, η = 0.1", SOFT),
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE, only=(HARD, SOFT)),
    },
    figure=figures.curves_by_line("test steps", "test", "test accuracy, %"),
    chosen=(*CHOSEN, "which r and η: the figure's legend is not in the text"),
    different=DIFFERENT,
)

TRACED = (*RATES, ITERATIONS[-1])  # of figure 2
UNTRAINED = tuple(
    replace(row, name=f"{row.name}, untrained", network="untrained", line="") for row in TRACED
)
FIGURE_3 = Experiment(
    title="Entropy of the first routing's couplings during training (figure 3)",
    rows=(*TRACED, *UNTRAINED),
    measure=measures.all_of(measures.entropy_trace, measures.TESTED, measures.test_curve),
    columns=(
        Column("entropy at the end", "Mean entropy, nats", "at the end", digits=3),
        Column("fall of the entropy", "Mean entropy, nats", "fall since the first epoch", digits=5),
        ACCURACY,
    ),
    claims=(
        *claims(
            "entropy at the end",
            ("a soft update keeps the entropy higher", SOFT, HARD),
            ("training lowers the entropy", R7_UNTRAINED, R7),
        ),
        *claims(
            "fall of the entropy",
            *((f"{row.name}: it falls as training completes", row.name, 0.0) for row in TRACED),
        ),
    ),
    untested={
        "accuracy rises as the entropy falls": "drawn, as in the paper; both follow from training, "
        "so their order in time says nothing of a cause",
        "too deep a fall early in training does not bode well": "an interpretation of the figure",
        "routing should be as certain as the network fits the data (a schedule of certainty)": "a "
        "strategy that the paper proposes and does not try",
    },
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS),
        "medium": replace(
            MEDIUM, about=f"{MEDIUM.about} Entropies of 1,000 test images.", images=1000
        ),
        "small": Scale(
            f"{ABOUT_SMALL}, 4 epochs of a quarter of the digits, 16 middle capsules; entropies of "
            "1,000 test images.",
            SMALL_ROUTING,
            images=1000,
            only=tuple(row.name for row in (*TRACED, *UNTRAINED) if "0.05" not in row.name),
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE, images=64, only=(HARD, SOFT)),
    },
    floor=LEARNED,
    figure=figures.beside(
        figures.curves("entropy steps", "entropy", "mean entropy, nats"),
        figures.trace,
    ),
    chosen=CHOSEN,
    different=(*DIFFERENT, "the printed formula's extra 1/J is left out"),
)

_CAPSNET = "lin2018_multimnist"  # figure 2's r = 3
_CNN = "lin2018_multimnist:lin2018_cnn"

# t-SNE is of 81 images each; all 90 ordered pairs of classes at full scale.
MANIFOLD = Experiment(
    title="Chamfer distance of the embedded representation to the grid of shifts (section 3.2)",
    rows=(
        Row("CapsNet", _CAPSNET, KEEP_ALL, {"Chamfer distance": 0.313, "variance": 0.010}),
        Row("CNN", _CNN, KEEP_ALL, {"Chamfer distance": 0.394, "variance": 0.025}),
        Row("CapsNet, untrained", _CAPSNET, KEEP_ALL, network="untrained"),
        Row("CNN, untrained", _CNN, KEEP_ALL, network="untrained"),
        Row("pixels", _CAPSNET, KEEP_ALL, network="pixels"),
    ),
    measure=measures.all_of(measures.grid_distances, measures.TESTED),
    columns=(
        Column("Chamfer distance", "Chamfer distance, px", "mean over pairs", digits=3),
        Column("variance", "Chamfer distance, px", "variance over pairs", digits=3),
        ACCURACY,
    ),
    floor=LEARNED,
    claims=claims(
        "Chamfer distance",
        ("CapsNet is nearer to the grid than the CNN", "CNN", "CapsNet"),
        ("training brings CapsNet nearer to the grid", "CapsNet, untrained", "CapsNet"),
        ("CapsNet is nearer than raw pixels", "pixels", "CapsNet"),
    )
    + claims("variance", ("CapsNet's distances vary less than the CNN's", "CNN", "CapsNet")),
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS, images=90 * 81),
        "medium": replace(
            MEDIUM, about=f"{MEDIUM.about} 32 dense units in the CNN; 20 pairs of digits."
        ),
        "small": Scale(
            f"{ABOUT_SMALL} (2 middle capsules; 16 dense units in the CNN), 3 epochs of half of "
            "the digits; 20 pairs of digits.",
            SMALL | {"data.train_fraction": 0.5},
            images=20 * 81,
        ),
        "smoke": Scale(ABOUT_SMOKE, SMOKE, images=81, only=("CapsNet", "CNN", "pixels")),
    },
    figure=figures.scatters,
    chosen=(
        *CHOSEN,
        "r = 3, η = 1",
        "t-SNE begins with PCA and has scikit-learn's perplexity; its embedding is fitted to the "
        "grid as a whole (Procrustes)",
        "the distance is the mean of both directions, not squared, in pixels; its variance is over "
        "pairs of digits",
        "t-SNE amplifies rounding: noise of 10⁻⁶ moves the distance of raw pixels between 0.53 and "
        "0.59, and so does another machine (0.57, 0.60)",
        "the CNN takes the binary cross-entropy",
    ),
    different=DIFFERENT,
)

TESTS = ("A1B", "A2B", "B1B", "B2B")


def _transfer(line: str, kind: str) -> tuple[Row, ...]:
    """Trains on B alone, then tests networks that begin with layers of a network of A or B."""
    alone = Row(f"{line}, B", f"lin2018_transfer:B,{kind}", line=line, floor=LEARNED)
    tests = (
        Row(
            f"{line}, {test}",
            f"lin2018_transfer:{test},{kind}",
            pretrained=f"lin2018_transfer:{test[0]},{kind}",
            line=line,
            x=x,
        )
        for x, test in enumerate(TESTS, start=1)
    )
    return (alone, *tests)


PAIRS = {f"{of}, A{n}B": f"{of}, B{n}B" for of in ("CapsNet", "CNN") for n in (1, 2)}

FIGURE_7 = Experiment(
    title="Accuracy on domain B with lower layers kept from A or B (figure 7)",
    rows=_transfer("CapsNet", "capsnet") + _transfer("CNN", "cnn"),
    measure=measures.TESTED,
    columns=(
        Column("accuracy", "MultiMNIST, domain B", "accuracy, %", best=100),
        Column(
            "drop",
            "MultiMNIST, domain B",
            "below the network's own B, seed by seed",
            derive=drop(),
        ),
        Column(
            "cost",
            "What layers of A cost",
            "A*n*B below B*n*B, seed by seed",
            derive=drop(PAIRS),
        ),
    ),
    claims=claims(
        "drop",
        *(
            (f"{test}: CapsNet drops less than the CNN", f"CNN, {test}", f"CapsNet, {test}")
            for test in TESTS
        ),
        *((f"{test} harms the CNN", f"CNN, {test}", 0.0) for test in TESTS),
        *((f"{test} harms CapsNet", f"CapsNet, {test}", 0.0) for test in ("A1B", "A2B")),
    )
    + claims(
        "cost",
        *((f"{a.replace(',', ':')} costs more than {b[-3:]}", a, 0.0) for a, b in PAIRS.items()),
    ),
    scales={
        "full": Scale(ABOUT_FULL, seeds=RUNS),
        "medium": replace(MEDIUM, about=f"{MEDIUM.about} 32 dense units in the CNN's layers."),
        "small": Scale(
            f"{ABOUT_SMALL} (2 capsules in each middle layer; 16 dense units in the CNN's), 4 "
            "epochs of a quarter of the digits.",
            SHORT,
        ),
        "smoke": Scale(
            ABOUT_SMOKE, SMOKE, only=("CapsNet, B", "CapsNet, A2B", "CNN, B", "CNN, A1B")
        ),
    },
    untested={
        "CapsNet's drop is minor, and layers of B serve new ones above": "no threshold is given; "
        "the table shows it"
    },
    figure=figures.beside(figures.bars(("B", *TESTS))),
    chosen=(
        *CHOSEN,
        "which pairs are in A and B, but for the seven that are printed (docs/data.md)",
        "A1B keeps one layer that was trained on A and trains the two others anew on B, for as "
        "many epochs; the first training of B1B and B2B is row B of the same run",
        "the floor applies on B; accuracies on A and couplings were not recorded",
    ),
    different=DIFFERENT,
)
