"""Datasets that TensorFlow Datasets (TFDS) has prepared in a directory, read without TensorFlow.

Finding a set, its splits and its fingerprint takes only its JSON files. TFDS itself is imported
where images are decoded or a set is prepared: on a cache hit it is not needed.
"""

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from capsjax._extras import extra, install
from capsjax._names import did_you_mean
from capsjax.data.cache import cached
from capsjax.data.dataset import Examples, Source, checked, fingerprint, track
from capsjax.data.lazy_images import LazyImages, exceeds

_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.+-]+))?(:(?P<version>\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_BATCH = 1000  # records read at once


def search_path(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Returns `data_dir` alone, or the directories in CAPSJAX_DATA_DIR and then TFDS's default."""
    if data_dir is not None:
        directory = Path(data_dir).expanduser()
        if not directory.is_dir():
            raise FileNotFoundError(f"data_dir: no directory {directory} of prepared TFDS datasets")
        return [directory]
    listed = os.environ.get("CAPSJAX_DATA_DIR", "").split(os.pathsep)
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return [Path(directory).expanduser() for directory in [*listed, default] if directory]


class PreparedDataset(Source):
    """One prepared set: a directory NAME[/CONFIG]/VERSION that holds dataset_info.json."""

    def __init__(self, directory: Path, device_budget_mb: float | None) -> None:
        self.where = str(directory.resolve())
        self._budget = device_budget_mb
        info = directory / "dataset_info.json"
        try:
            self.splits = tuple(split["name"] for split in json.loads(info.read_text())["splits"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{info} is damaged ({error!r}): prepare the dataset again") from error

    def fingerprint(self, split: str) -> str:
        return fingerprint(sorted(Path(self.where).iterdir()))

    def read(self, split: str) -> Examples:
        """Decodes a split, or only its labels if the images exceed the budget."""
        records = _Records(self.where, split)
        shape = (len(records), *records.first.shape)
        if exceeds(math.prod(shape), self._budget):
            return self._stored(split, records)
        images = np.empty(shape, records.first.dtype)
        labels = np.empty(len(images), np.int64)
        for i, example in enumerate(records.in_order("decoding")):
            images[i], labels[i] = records.image(example, i), example[records.label_key]
        return checked(images, labels, records.class_names, records.where)

    def _stored(self, split: str, records: "_Records") -> Examples:
        """Returns a split whose images stay in the files."""

        def read_labels() -> Examples:
            labels = [example[records.label_key] for example in records.in_order("labels of")]
            return Examples(records.first[None], np.array(labels, np.int32), records.class_names)

        def read(places: Int[np.ndarray, "m"]) -> UInt8[np.ndarray, "m h w c"]:
            examples = records[places.tolist()]
            return np.stack([records.image(*each) for each in zip(examples, places, strict=True)])

        head = cached(f"{self.where} {split} labels", self.fingerprint(split), read_labels)
        checked(head.images, head.labels[:1], head.class_names, records.where)  # kind of image
        images = LazyImages(read, head.images.shape[1:], np.arange(len(head.labels)))
        return checked(images, head.labels, head.class_names, records.where)


def find(name: str, directories: Sequence[Path]) -> Path | None:
    """Returns where the first directory with NAME[/CONFIG][:VERSION] has its newest version."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    for directory in directories:
        base = directory / match["name"] / (match["config"] or "")
        if not match["config"] and not _versions(base):
            configs = sorted({info.parents[1].name for info in base.glob("*/*/dataset_info.json")})
            if len(configs) > 1:
                raise ValueError(
                    f"name: {name!r} is in {directory} in {len(configs)} configurations; expected "
                    f"one of {', '.join(f'{name}/{config}' for config in configs)}"
                )
            base = base.joinpath(*configs)
        versions = [v for v in _versions(base) if match["version"] in (None, v)]
        if versions:
            return base / versions[-1]
    return None


def download(name: str, directories: Sequence[Path], known: Sequence[str]) -> Path:
    """Downloads and prepares a TFDS set, with TensorFlow, into the first of `directories`."""
    with extra("data"):
        import tensorflow_datasets as tfds

    names = [*known, *tfds.list_builders(with_community_datasets=False)]
    if re.split("[:/]", name)[0] not in names:
        hint = f"write 'folder:{name}' for a directory of images, 'npz:{name}' for an .npz file"
        if not name or not Path(name).expanduser().exists():
            hint = (
                "expected 'digits', the name of a TFDS dataset, folder:PATH, npz:PATH or "
                f"affnist:PATH: {did_you_mean(name, names)}"
            )
        raise ValueError(f"name: unknown dataset {name!r}; {hint}")
    if find_spec("tensorflow") is None:
        places = "\n".join(f"  {directory}" for directory in directories)
        raise FileNotFoundError(
            f"name: dataset {name!r} is not prepared in\n{places}\n"
            "Name a directory that holds it (CAPSJAX_DATA_DIR, or data_dir), or install what "
            f"downloads it, {install('prepare')}, and load it again"
        )
    # A format that can be read without TensorFlow.
    builder = tfds.builder(name, data_dir=directories[0], file_format="array_record")
    builder.download_and_prepare()
    return Path(builder.data_dir)


def _versions(base: Path) -> list[str]:
    versions = [info.parent.name for info in base.glob("*/dataset_info.json")]
    numbered = [version for version in versions if _VERSION.fullmatch(version)]
    return sorted(numbered, key=lambda version: [int(part) for part in version.split(".")])


class _Records:
    """A split's examples as TFDS gives them, but with encoded images, read when indexed."""

    def __init__(self, directory: str, split: str) -> None:
        with extra("data"):
            import tensorflow_datasets as tfds

        self.where = f"{directory}, split {split!r}"
        with self._reading():
            builder = tfds.builder_from_directory(directory)
        info = builder.info
        self._name = info.name
        images, self.label_key = _image_and_label_keys(info, directory)
        self._image_key = images[0]
        self._decode = info.features[images[0]].decode_example_np
        with self._reading():
            decoders = dict.fromkeys(images, tfds.decode.SkipDecoding())
            self._source = builder.as_data_source(split=split, decoders=decoders)
        self.class_names = tuple(info.features[self.label_key].names or ())
        self.first = self._image(self[[0]][0])

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, places: Sequence[int]) -> list[dict[str, Any]]:
        with self._reading():
            return self._source.__getitems__(places)

    def in_order(self, verb: str) -> Iterator[dict[str, Any]]:
        # In batches, which costs a third less than one by one.
        starts = range(0, len(self), _BATCH)
        batches = (self[range(start, min(start + _BATCH, len(self)))] for start in starts)
        return track(chain.from_iterable(batches), f"{verb} {self._name}", len(self))

    def image(self, example: dict[str, Any], place: int) -> np.ndarray:
        """Decodes the image of an example; raises ValueError if its size is not the first one's."""
        image = self._image(example)
        if image.shape != self.first.shape:
            raise ValueError(
                f"{self.where}: image {place} has [H, W, C] = {list(image.shape)} and the first "
                f"has {list(self.first.shape)}: write resized ones into a folder:PATH"
            )
        return image

    def _image(self, example: dict[str, Any]) -> np.ndarray:
        with self._reading():
            return self._decode(example[self._image_key])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of JSON, protocol buffers, array_record, PIL and TFDS itself
            raise ValueError(
                f"{self.where}: files are missing or damaged ({error}); copy them or prepare the "
                "dataset again"
            ) from error


def _image_and_label_keys(info: Any, where: str) -> tuple[list[str], str]:
    """Returns the keys of the images, the input first, and of the label: as named, or the only."""
    with extra("data"):
        import tensorflow_datasets as tfds

    features = info.features if isinstance(info.features, tfds.features.FeaturesDict) else {}
    images = [k for k, f in features.items() if isinstance(f, tfds.features.Image)]
    labels = [k for k, f in features.items() if isinstance(f, tfds.features.ClassLabel)]
    match info.supervised_keys:
        case (image, label) if image in images and label in labels:
            return [image, *images], label
    if len(images) == 1 and len(labels) == 1:
        return images, labels[0]
    raise ValueError(
        f"{where} is not an image classification set: expected one Image and one ClassLabel "
        f"feature, got images {images} and class labels {labels} among {list(features)}"
    )
