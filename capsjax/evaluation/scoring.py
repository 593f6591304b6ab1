"""The scores of a network on a data set or on the evaluation set of a task."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, PyTree

from capsjax.data import load, tasks
from capsjax.data.accuracy import Rule, top
from capsjax.data.images import AS_IT_IS, Fitting
from capsjax.data.lazy_images import DEVICE_BUDGET_MB, LazyImages
from capsjax.data.sources import default_split
from capsjax.data.tasks import EvaluationSet, Example, NumberedExamples
from capsjax.evaluation.batches import in_batches, lower, outline
from capsjax.layers.bound import bound
from capsjax.models import ScoreKind


class EvaluationData(NamedTuple):
    """What a network is evaluated on."""

    name: str  #: of the data set or the task
    split: str  #: of the data set, or the name of the task's evaluation set
    class_names: tuple[str, ...]  #: in the order of the labels
    examples: EvaluationSet
    rule: Rule  #: from scores to the predicted classes
    multi_label: bool  #: whether an image can show several classes

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.examples.recipe.image_shape(self.examples.source.images.shape[1:])


def evaluation_data(
    config: ml_collections.ConfigDict,
    name: str | None,
    split: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    device_budget_mb: float | None = DEVICE_BUDGET_MB,
) -> EvaluationData:
    """Returns the split of a data set, unchanged, or the evaluation set of a generated task.

    Images of a "folder:PATH" are made to fit the network, as its training images were.

    Args:
      name: of the set or task; None for the one that the network was trained on.
      split: of the set, or the name of an evaluation set of the task. None means "test"; if there
        is no test split, the validation split; without that, what training held out.
      data_dir, device_budget_mb: as for `capsjax.runs.loop.train`.
    """
    name = name or config.data.name
    own: Any = config.data if name == config.data.name else {"name": name}
    usual = None if name in tasks.generated() else default_split(name, data_dir)
    held_out = own is config.data and not usual and split in (None, "validation")
    if name not in tasks.generated() and not held_out:
        split = split or usual or "test"
        dataset = load(
            name, split, data_dir, device_budget_mb=device_budget_mb, fitting=fitting(config, name)
        )
        examples = tasks.as_it_is(dataset)
        return EvaluationData(name, split, dataset.class_names, examples, top(1), False)
    shared = [key for key in ("source", "validation_fraction") if key in config.data]
    own = {**{k: config.data[k] for k in shared if hasattr(tasks.family(name), k)}, **own}
    task = tasks.create(**own, data_dir=data_dir, device_budget_mb=device_budget_mb)
    split = split or ("test" if task.tests else "validation")
    examples = task.evaluation_set(split)
    if not len(examples):
        raise ValueError(f"split: {name!r} has no {split} images, none were held out: give another")
    return EvaluationData(name, split, task.class_names, examples, task.rule, task.multi_label)


def fitting(config: ml_collections.ConfigDict, name: str = "folder:") -> Fitting:
    """Returns the conversion that fits images of the data set `name` to the network of `config`."""
    if not name.startswith("folder:"):
        return AS_IT_IS
    height, width, channels = config.task.input_shape
    return Fitting(height, width, channels, config.data.get("fit", "pad"))


def score(
    model: nnx.Module, examples: EvaluationSet, **options: Any
) -> Float[np.ndarray, "n classes"]:
    """Returns the class scores of every example, in order; options as for `in_batches`."""
    function, arrays = on_examples(_scores, examples)
    return in_batches(function, model, arrays, **options)


def lower_score(model: nnx.Module, examples: EvaluationSet, **options: Any) -> jax.stages.Lowered:
    """Returns the program of `score`, lowered; options as for `evaluation.batches.lower`."""
    function, arrays = on_examples(_scores, examples)
    return lower(function, model, arrays, **options)


def _scores(model: Any, batch: Example) -> Float[Array, "n classes"]:
    return model(batch.image).scores


def on_examples(
    answer: Callable[[Any, Example], PyTree], examples: EvaluationSet
) -> tuple[Callable[..., PyTree], tuple[Any, ...]]:
    """Returns a function and arrays for `in_batches` that make it call `answer(model, batch)`."""
    source, chosen = examples.source, examples.chosen
    shape = (chosen.shape[1], *source.images.shape[1:])
    numbers = np.arange(len(examples))
    images = LazyImages(lambda numbers: source.images[chosen[numbers]], shape, numbers)
    function = bound(_answered, numbered=examples.numbered, answer=answer)
    return function, (numbers, images, source.labels[chosen])


def _answered(
    model: Any, *arrays: Array, numbered: NumberedExamples, answer: Callable[[Any, Example], PyTree]
) -> PyTree:
    return answer(model, jax.vmap(numbered.make)(*arrays))


def gives_logits(model: nnx.Module, image_shape: Sequence[int]) -> bool:
    """Tells whether a network's scores are logits rather than lengths; computes nothing."""
    return outline(model, image_shape).score_kind is ScoreKind.LOGITS


def check_fits(config: ml_collections.ConfigDict, data: EvaluationData) -> None:
    """Raises ValueError unless the network of `config` is for these images and classes by name."""
    for what, there, here in (
        ("images of", data.image_shape, tuple(config.task.input_shape)),
        ("the classes", data.class_names, tuple(config.task.class_names)),
    ):
        if there != here:
            takes = f"this network takes {_in_words(here, there)}"
            raise ValueError(
                f"{data.name} has {what} {_in_words(there, here)}, {takes}: "
                f"it was trained on --dataset={config.data.name}"
            )


def _in_words(shape_or_names: tuple[Any, ...], other: tuple[Any, ...], show: int = 5) -> str:
    if isinstance(shape_or_names[0], int):
        return "×".join(map(str, shape_or_names))
    alike = [*(a != b for a, b in zip(shape_or_names, other, strict=False)), True].index(True)
    shown = ["…"][:alike] + [*shape_or_names[alike:]][:show]
    more = ", …" if len(shape_or_names) > alike + show else ""
    return f"{', '.join(shown)}{more} ({len(shape_or_names)})"
