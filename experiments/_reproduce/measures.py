"""What is measured on a network. Each function here returns a measurement."""

from collections import ChainMap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _benchmark.measure import measure
from _scoring import summarize
from flax import nnx

from _reproduce.experiment import ENTROPY, PARAMETERS, SHARE, Measured, columns, options_first
from capsjax.data import tasks
from capsjax.evaluation import manifold, scoring
from capsjax.evaluation.alignment import TRANSFORMATIONS, align, direction_cosines
from capsjax.evaluation.batches import in_batches, merged, outline
from capsjax.evaluation.compactness import AMOUNTS, compactness_of_mean, semantic_compactness
from capsjax.evaluation.entropy import routing_entropies, true_class_shares
from capsjax.evaluation.perturbation import reconstruct_perturbed, symmetric_offsets
from capsjax.evaluation.transformations import moved_poses
from capsjax.functional import mask_poses, to_unit
from capsjax.models import Output
from capsjax.runs import checkpoints
from capsjax.training.state import num_parameters


class FinishedRun(NamedTuple):
    """A finished run, or a control."""

    checkpoint: Any  # the best by validation accuracy where images were held out, else the last
    history: Any  # of the whole run; empty for a control
    directory: Path | None  # of `capsjax.runs.loop.train`; None for a control
    images: int  # how many test images to look at where a measurement does not look at all
    data_dir: str | None  # as for `capsjax.data.load`

    def examples(self, chosen: str = "test") -> scoring.EvaluationData:
        """Returns an evaluation set of the run's task; "train" is its training images."""
        return scoring.evaluation_data(self.checkpoint.config, None, chosen, self.data_dir)

    def first_examples(self, number: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first test images, and a 1 for each class that is in them."""
        examples = self.examples().examples
        number = min(number or self.images, self.images, len(examples))
        return tasks.render(examples, np.arange(number))[:2]

    def first_images(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first test images, and their classes."""
        images, targets = self.first_examples()
        return images, targets.argmax(-1).astype(np.int32)

    def by_epoch(self) -> Iterator["FinishedRun"]:
        """Yields a run that keeps its checkpoints as it was after each epoch."""
        for step in self.history.validation_accuracy():
            yield self._replace(checkpoint=checkpoints.read(self.directory, step))


class Pixels(nnx.Module):
    """No network: the image is the pose of every class, and the output of the layer "pixels"."""

    def __init__(self, num_classes: int):
        self.num_classes = num_classes

    def __call__(self, images: jax.Array, capture: bool = False, mask: Any = None) -> Output:
        """See `capsjax.models.Model`."""
        flat = to_unit(images).reshape(len(images), -1)
        poses = jnp.repeat(flat[:, None], self.num_classes, axis=1)
        scores = jnp.zeros((len(images), self.num_classes))
        return Output(scores, poses, features={"pixels": flat})


@options_first
def all_of(run: FinishedRun, *measures: Callable[[FinishedRun], Measured]) -> Measured:
    """Combines several measurements."""
    results = [measure(run) for measure in measures]
    return Measured(*(dict(ChainMap(*parts)) for parts in zip(*results, strict=True)))


@options_first
def accuracy(run: FinishedRun, **sets: str) -> Measured:
    """Measures per cent right, by the metric's name and evaluation set, and learning curves."""
    if isinstance(run.checkpoint.model, Pixels):
        return Measured({})
    metrics = {metric: percent_right(run, chosen) for metric, chosen in sets.items()}
    return Measured(metrics, learning_curve(run))


TESTED = accuracy(accuracy="test")


def error(run: FinishedRun) -> Measured:
    """Measures per cent wrong on the test images, as `accuracy`."""
    return Measured({"error": 100 - percent_right(run, "test")}, learning_curve(run))


def percent_right(run: FinishedRun, chosen: str) -> float:
    """Returns the share of right answers by the task's own rule, in per cent."""
    data, model, devices = run.examples(chosen), run.checkpoint.model, jax.local_devices()
    scores = scoring.score(model, data.examples, batch_size=128 * len(devices), devices=devices)
    return 100 * summarize(model, data, scores).accuracy


def learning_curve(run: FinishedRun) -> dict[str, list[float]]:
    """Returns training and, with held-out images, validation accuracy, in per cent, by step."""
    series = {}
    if training := run.history.training("accuracy"):  # not of a control
        series["training steps"] = list(training)
        series["training"] = [100 * value for value in training.values()]
    if validation := run.history.validation_accuracy():
        series["steps"] = list(validation)
        series["validation"] = [100 * value for value in validation.values()]
    return series


def test_curve(run: FinishedRun) -> Measured:
    """Measures per cent right on the test images after each epoch."""
    steps = list(run.history.validation_accuracy())
    curve = [percent_right(then, "test") for then in run.by_epoch()]
    return Measured({}, {"test steps": steps, "test": curve} if steps else {})


def network(run: FinishedRun) -> Measured:
    """Counts parameters, and measures how decided the routing of 500 images is, if there is one.

    That is the entropy of the couplings in per cent of that of equal ones, in the layer with the
    lowest, and the share of a child's vote that the true class gets; attention routing (Choi et al.
    2019), which divides a parent and not a child, has no such share.
    """
    model = run.checkpoint.model
    size = Measured({PARAMETERS: num_parameters(model)})
    images, targets = run.first_examples(500)
    routed = outline(model, images.shape[1:]).routed
    if not routed:
        return size
    entropies, axis, true = routing_entropies(model, images), -2, {}
    *_, last = model(jnp.asarray(images[:2]), capture=True).routed.values()
    if jnp.allclose(last.coupling.sum(axis=-1), 1, atol=1e-3):
        axis, true_shares = -1, true_class_shares(model, images, targets)
        true = {SHARE: 100 * float(true_shares.mean())}
    most = {name: np.log(routed[name].coupling.shape[axis]) for name in entropies}
    lowest = min(float(values.mean() / most[name]) for name, values in entropies.items())
    return Measured(size.metrics | {ENTROPY: 100 * lowest} | true)


def entropy_trace(run: FinishedRun) -> Measured:
    """Measures the mean entropy of the first routing after each epoch (Lin et al. 2018)."""
    images, _ = run.first_images()
    steps = list(run.history.validation_accuracy())
    # A network that was not trained is measured as it is.
    networks = (then.checkpoint.model for then in (run.by_epoch() if steps else [run]))
    entropies = [float(routing_entropies(model, images)["capsules1"].mean()) for model in networks]
    return Measured(
        {"entropy at the end": entropies[-1], "fall of the entropy": entropies[0] - entropies[-1]},
        {"entropy steps": steps, "entropy": entropies} if steps else {},
    )


def compactness(run: FinishedRun) -> Measured:
    """Measures semantic compactness by factor (Gu et al. 2021, table 5), averaged both ways."""
    images, labels = run.first_images()
    metrics = {}
    for factor, amounts in AMOUNTS.items():
        poses = moved_poses(run.checkpoint.model, images, labels, factor, amounts)
        # An image whose pose does not move at all has no distribution of variance.
        metrics[factor] = float(np.nanmean(semantic_compactness(poses)))
        metrics[f"{factor}, averaged first"] = float(compactness_of_mean(poses))
    return Measured(metrics)


def alignment(run: FinishedRun) -> Measured:
    """Measures alignment ratios and cosines (Choi et al. 2019, table 3 and figure 4)."""
    images, labels = run.first_images()
    aligned = {}
    for name, (factor, amounts) in TRANSFORMATIONS.items():
        poses = moved_poses(run.checkpoint.model, images, labels, factor, (0.0, *amounts))
        aligned[name] = align(poses[:, 1:] - poses[:, :1])
    metrics = {name: float(np.nanmean(a.ratios)) for name, a in aligned.items()}
    digits = {}  # the mean over the transformations
    for digit in sorted(set(labels.tolist())):
        own = {n: float(np.nanmean(a.ratios[labels == digit])) for n, a in aligned.items()}
        metrics |= {f"{name}, digit {digit}": ratio for name, ratio in own.items()}
        digits[digit] = metrics[f"mean, digit {digit}"] = float(np.mean([*own.values()]))
    for digit, sign in ((8, 1), (5, -1)):
        others = [sign * ratio for other, ratio in digits.items() if other != digit]
        beyond = sign * digits[digit] - max(others)
        metrics[f"digit {digit} {'above' if sign > 0 else 'below'} all others"] = beyond
    series = {}
    for factor in ("rotation", "x", "y"):
        both = (aligned[f"{factor}{sign}"].direction for sign in "+-")
        cosines = np.asarray(direction_cosines(*both))
        counts, edges = np.histogram(cosines, bins=40, range=(-1, 1))
        series |= {f"{factor} counts": counts.tolist(), "edges": edges.tolist()}
        metrics[f"{factor}: cos > 0.8"] = 100 * float(np.mean(cosines > 0.8))
        metrics[f"{factor}: cos < -0.8"] = 100 * float(np.mean(cosines < -0.8))
    return Measured(metrics, series)


# For `perturbation`.
PERTURBED_IMAGES = 100
CHANGES = "elements of the pose change the picture (more than without training)"
RANGE_OF_A_PIXEL = columns(
    "How much pixels change (1: from black to white)",
    {"range of a pixel": "mean", "its deviation over images": "deviation over images"},
    digits=4,
)


@options_first
def perturbation(
    run: FinishedRun, limit: float, step: float, *, relative: bool = False, shown: int = 2
) -> Measured:
    """Measures how much a pixel changes as one element of the pose goes from −limit to limit.

    `shown` images of different classes become pictures. With `relative` limit and step are times √D
    (Choi et al. 2019).
    """
    images, labels = (each[:PERTURBED_IMAGES] for each in run.first_images())
    model = run.checkpoint.model
    poses = model(jnp.asarray(images)).poses
    unit = float(np.sqrt(poses.shape[-1])) if relative else 1.0
    offsets = symmetric_offsets(limit * unit, step * unit)
    conditional = run.checkpoint.config.model.reconstruction == "conditional"
    _, first = np.unique(labels, return_index=True)
    pictures = set(np.sort(first)[:shown].tolist())
    ranges, arrays = [], {}
    for i, (pose, label) in enumerate(zip(poses, labels, strict=True)):
        array = reconstruct_perturbed(
            model.decoder, pose, int(label), offsets, conditional=conditional
        )
        ranges.append(np.ptp(array, axis=1).mean())
        if i in pictures:
            arrays[f"class {label}"] = np.round(255 * np.clip(array, 0, 1)).astype(np.uint8)
    metrics = {
        "range of a pixel": float(np.mean(ranges)),
        "its deviation over images": float(np.std(ranges)),
        "perturbed images": len(ranges),
    }
    return Measured(metrics, {"offsets": [float(offset) for offset in offsets]}, arrays=arrays)


@options_first
def reconstructions(run: FinishedRun, correct: int = 5, wrong: int = 2) -> Measured:
    """Shows images beside their reconstructions, with (label, prediction, target) of each.

    The first that are classified correctly, then the first that are not, each from the pose of the
    predicted and of the true class (Sabour et al. 2017, figure 3).
    """
    images, labels = run.first_images()
    classes = np.eye(len(run.checkpoint.config.task.class_names), dtype=np.float32)

    def answers(places: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrays = (images[places], classes[targets])
        return in_batches(_scores_and_reconstruction, run.checkpoint.model, arrays)

    scores, drawn = answers(np.arange(len(images)), labels)
    predicted = scores.argmax(-1)
    good = np.flatnonzero(predicted == labels)[:correct]
    bad = np.flatnonzero(predicted != labels)[:wrong]
    places = np.concatenate([good, np.repeat(bad, 2)])
    pairs = [target for i in bad for target in (predicted[i], labels[i])]
    targets = np.concatenate([labels[good], np.array(pairs, labels.dtype)])
    _, shown = answers(places, targets)
    # A control: the mean image of the class for each image.
    means = np.stack([images[labels == label].mean(0) for label in range(len(classes))]) / 255
    metrics = {
        "squared error of a pixel": float(np.square(drawn - images / 255).mean()),
        "of the class's mean image": float(np.square(means[labels] - images / 255).mean()),
    }
    series = {"label": labels[places], "prediction": predicted[places], "target": targets}
    arrays = {"images": images[places], "reconstructions": np.round(255 * shown).astype(np.uint8)}
    return Measured(metrics, {name: x.tolist() for name, x in series.items()}, arrays=arrays)


def _scores_and_reconstruction(model: Any, images: Any, mask: Any) -> Any:
    output = model(images, mask=mask)
    return output.scores, output.reconstruction


def feature_space(run: FinishedRun) -> Measured:
    """Measures the decoder's input and output for each test point (Gu et al. 2021, figure 5).

    A conditional decoder sees the units of the true class alone, as in training.
    """
    from sklearn.neighbors import NearestNeighbors  # takes a second to import

    images, labels = run.first_images()
    config = run.checkpoint.config
    mask = jax.nn.one_hot(labels, len(config.task.class_names))
    output = run.checkpoint.model(jnp.asarray(images), mask=mask)
    seen = mask if config.model.reconstruction == "conditional" else jnp.ones_like(mask)
    features = np.asarray(mask_poses(output.poses, seen))
    nearest = NearestNeighbors(n_neighbors=1).fit(features).kneighbors(return_distance=False)
    centred = features - features.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return Measured(
        {
            "nearest is of the class": 100 * float(np.mean(labels[nearest[:, 0]] == labels)),
            "inside the unit sphere": 100 * float(np.mean(np.linalg.norm(features, axis=1) < 1)),
        },
        arrays={
            "labels": labels,
            "features": (centred @ axes[:2].T).astype(np.float32),
            "reconstructions": np.asarray(output.reconstruction).reshape(len(images), -1),
        },
    )


def grid_distances(run: FinishedRun) -> Measured:
    """Measures Chamfer distances of the middle layer's embedding to the shifts (Lin et al. 2018).

    Of ordered pairs of classes: k fixed and k + 1 moving, then k + 2, and so on, 81 images each.
    """
    config, model = run.checkpoint.config, run.checkpoint.model
    examples = run.examples("shift_grid").examples
    grid = manifold.shift_grid(config.data.max_shift)
    layer = "pixels" if isinstance(model, Pixels) else manifold.MIDDLE[config.model.name]
    distances, arrays = [], {}
    num = examples.recipe.num_classes
    pairs = [(k, (k + step) % num) for step in range(1, num) for k in range(num)]
    for fixed, moving in pairs[: max(1, run.images // len(grid))]:
        places = examples.recipe.first_of(fixed, moving) + np.arange(len(grid))
        images = tasks.render(examples, places).images
        points = manifold.embed(manifold.representations(model, images, layer))
        distances.append(manifold.grid_distance(points, grid))
        if len(arrays) < 3:  # enough for a figure
            fitted = manifold.fit_to(points, grid).astype(np.float32)
            arrays[f"{fixed} fixed, {moving} moving"] = fitted
    metrics = {"Chamfer distance": float(np.mean(distances)), "variance": float(np.var(distances))}
    return Measured(metrics, arrays=arrays)


def cost(run: FinishedRun) -> Measured:
    """Measures memory and time of the scores of 128 images (Tsai et al. 2020)."""
    graphdef, state = nnx.split(run.checkpoint.model)
    images = jnp.zeros((128, *run.checkpoint.config.task.input_shape), jnp.uint8)
    found = measure(lambda state, x: merged(graphdef, state)(x).scores, state, images, repeats=3)
    times = {"inference_seconds": found.seconds}
    return Measured({"memory MB": found.megabytes * 1e6 / 2**20}, times=times)
