"""Datasets that TensorFlow Datasets (TFDS) has prepared in a directory, read without TensorFlow.

Finding a set, its splits and its fingerprint takes only its JSON files. TFDS itself is imported
where images are decoded or a set is prepared: on a cache hit it is not needed.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Int, UInt8

from capsjax._extras import extra
from capsjax.data.dataset import Examples, checked
from capsjax.data.lazy_images import LazyImages
from capsjax.data.progress import track

_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.+-]+))?(:(?P<version>\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_BATCH = 1000  # records read at once


def search_path(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """`data_dir` alone, or the directories in CAPSJAX_DATA_DIR and then TFDS's default.

    Raises:
      FileNotFoundError: `data_dir` is given and is not a directory.
    """
    if data_dir is not None:
        directory = Path(data_dir).expanduser()
        if not directory.is_dir():
            raise FileNotFoundError(
                f"data_dir: no directory {directory}; expected one that holds prepared TFDS "
                "datasets (NAME/VERSION/dataset_info.json), or an empty one to prepare them in"
            )
        return [directory]
    listed = os.environ.get("CAPSJAX_DATA_DIR", "").split(os.pathsep)
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return [Path(directory).expanduser() for directory in [*listed, default] if directory]


class PreparedDataset:
    """One prepared set: a directory NAME[/CONFIG]/VERSION that holds dataset_info.json."""

    def __init__(self, directory: Path) -> None:
        """Raises ValueError if dataset_info.json cannot be understood."""
        self.where = str(directory.resolve())
        info = directory / "dataset_info.json"
        try:
            splits = json.loads(info.read_text())["splits"]
            self.splits = tuple(split["name"] for split in splits)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{info} is not a TFDS dataset description with splits ({error!r}): "
                "prepare the dataset again"
            ) from error

    def fingerprint(self, split: str) -> str:
        """Names, sizes and times of all files: preparing again changes it."""
        del split
        stats = sorted((f.name, f.stat()) for f in os.scandir(self.where) if f.is_file())
        return json.dumps([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])

    def read(self, split: str) -> Examples:
        """Decodes a split.

        Raises:
          ValueError: not an image classification set, images of different sizes or types, a
            file format without random access, or files that are missing or damaged.
        """
        with _reading(where := self._name(split)):
            records = _open(self.where, split, where)
            images = np.empty((len(records.source), *records.image_shape), records.dtype)
            labels = np.empty(len(images), np.int64)
            examples = _in_order(records.source)
            for i, example in enumerate(track(examples, f"decoding {records.name}", len(images))):
                images[i] = _image(example, i, records, where)
                labels[i] = example[records.label_key]
            return checked(images, labels, records.class_names, where)

    def decoded_bytes(self, split: str) -> int:
        """The memory that the images of a split take when decoded; only the first one is."""
        with _reading(where := self._name(split)):
            records = _open(self.where, split, where)
            return len(records.source) * int(np.prod(records.image_shape))

    def read_labels(self, split: str) -> Examples:
        """All labels, and of the images only the first."""
        with _reading(where := self._name(split)):
            records = _open(self.where, split, where)
            examples = track(
                _in_order(records.labels()), f"labels of {records.name}", len(records.source)
            )
            labels = np.array([example[records.label_key] for example in examples], np.int32)
            first = records.source[0][records.image_key][None]
            return Examples(first, labels, records.class_names)

    def stored(self, split: str, head: Examples) -> Examples:
        """A split whose images stay in the files; raises ValueError as `read`, some of it later.

        Args:
          split: its name.
          head: what `read_labels` gives.
        """
        where = self._name(split)
        records = cache(lambda: _open(self.where, split, where))

        def read(places: Int[np.ndarray, "m"]) -> UInt8[np.ndarray, "m h w c"]:
            with _reading(where):
                examples = records().source.__getitems__(places.tolist())
                pairs = zip(places, examples, strict=True)
                return np.stack([_image(x, place, records(), where) for place, x in pairs])

        images = LazyImages(read, head.images.shape[1:], np.arange(len(head.labels)))
        checked(head.images, head.labels[:1], head.class_names, where)  # the kind of image
        return checked(images, head.labels, head.class_names, where)

    def _name(self, split: str) -> str:
        return f"{self.where}, split {split!r}"


def find(name: str, directories: list[Path]) -> PreparedDataset | None:
    """The set in the first directory that holds it, in its newest version there.

    Args:
      name: NAME, NAME/CONFIG, and either with :VERSION. The configuration can be left out where
        only one is prepared.

    Raises:
      ValueError: several configurations are prepared and `name` does not say which.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    for directory in directories:
        base = directory / match["name"] / (match["config"] or "")
        configs = [] if match["config"] else _configs(base)
        if len(configs) > 1 and not _versions(base):
            raise ValueError(
                f"name: {name!r} is in {directory} in {len(configs)} configurations; expected "
                f"one of {', '.join(f'{name}/{config}' for config in configs)}"
            )
        if configs and not _versions(base):
            base /= configs[0]
        versions = [v for v in _versions(base) if match["version"] in (None, v)]
        if versions:
            return PreparedDataset(base / versions[-1])
    return None


def prepared_names(directories: list[Path]) -> list[str]:
    """The names of all sets that are prepared in the directories."""
    bases = [base for d in directories if d.is_dir() for base in sorted(d.iterdir())]
    return [
        name
        for base in bases
        for name in [base.name] * bool(_versions(base))
        + [f"{base.name}/{config}" for config in _configs(base)]
    ]


def _versions(base: Path) -> list[str]:
    """The versions of a set or configuration, oldest first."""
    versions = [info.parent.name for info in base.glob("*/dataset_info.json")]
    numbered = [version for version in versions if _VERSION.fullmatch(version)]
    return sorted(numbered, key=lambda version: [int(part) for part in version.split(".")])


def _configs(base: Path) -> list[str]:
    return sorted({info.parents[1].name for info in base.glob("*/*/dataset_info.json")})


class _Records(NamedTuple):
    """A split's examples as TFDS gives them, decoded when they are indexed."""

    source: Any
    name: str
    image_key: str
    label_key: str
    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    dtype: np.dtype
    labels: Callable[[], Any]  # the same without decoding images


@contextmanager
def _reading(where: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError) as error:  # array_record's and PIL's
        raise ValueError(
            f"{where}: files are missing or damaged ({error}); copy them or prepare the "
            "dataset again"
        ) from error


def _lines(file: epath.Path) -> list[str] | None:
    """The lines that are not blank; None if it cannot be read."""
    try:
        return [line.strip() for line in file.read_text().split("\n") if line.strip()]
    except (OSError, ValueError):
        return None


def _open(directory: str, split: str, where: str) -> _Records:
    with extra("data"):
        import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(directory)
    except Exception as error:  # of JSON, protocol buffers and TFDS itself
        raise ValueError(
            f"{directory}: features.json or dataset_info.json is damaged ({error}); copy it again "
            "or prepare the dataset again"
        ) from error
    image_key, label_key = _image_and_label_keys(builder.info, directory)
    try:
        source = builder.as_data_source(split=split)
    except NotImplementedError as error:
        raise ValueError(
            f"{where}: the files are in the format {builder.info.file_format.value}, which takes "
            "TensorFlow to read; prepare the dataset again with file_format='array_record'"
        ) from error
    if len(source) == 0:
        raise ValueError(f"{where}: there are no examples in it")
    class_names = tuple(builder.info.features[label_key].names or ())
    names_file = epath.Path(directory) / f"{label_key}.labels.txt"
    if names_file.exists() and _lines(names_file) != list(class_names):
        # TFDS passes over what it cannot read, and calls classes by their numbers.
        raise ValueError(f"{where}: {names_file} holds no class names; copy it again")
    first = source[0][image_key]
    return _Records(
        source,
        builder.info.name,
        image_key,
        label_key,
        class_names,
        first.shape,
        first.dtype,
        lambda: builder.as_data_source(
            split=split,
            decoders={
                key: tfds.decode.SkipDecoding()
                for key, feature in builder.info.features.items()
                if isinstance(feature, tfds.features.Image)
            },
        ),
    )


def _image(example: dict[str, Any], place: int, records: _Records, where: str) -> np.ndarray:
    image = example[records.image_key]
    if image.shape != records.image_shape:
        raise ValueError(
            f"{where}: image {place} has [H, W, C] = {list(image.shape)} and the first has "
            f"{list(records.image_shape)}; expected images of one size: write resized ones into a "
            "folder and load folder:PATH"
        )
    return image


def _in_order(source: Any) -> Iterator[dict[str, Any]]:
    """All examples in order; read in batches, which costs a third less than one by one."""
    for start in range(0, len(source), _BATCH):
        yield from source.__getitems__(range(start, min(start + _BATCH, len(source))))


def _image_and_label_keys(info, where: str) -> tuple[str, str]:
    """The keys that the set names as input and label, or its only image and only class label."""
    with extra("data"):
        import tensorflow_datasets as tfds

    features = info.features if isinstance(info.features, tfds.features.FeaturesDict) else {}
    images = [k for k, f in features.items() if isinstance(f, tfds.features.Image)]
    labels = [k for k, f in features.items() if isinstance(f, tfds.features.ClassLabel)]
    match info.supervised_keys:
        case (image, label) if image in images and label in labels:
            return image, label
    if len(images) == 1 and len(labels) == 1:
        return images[0], labels[0]
    raise ValueError(
        f"{where} is not an image classification set: expected one Image and one ClassLabel "
        f"feature, got images {images} and class labels {labels} among {list(features)}"
    )
