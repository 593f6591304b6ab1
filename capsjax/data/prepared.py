"""Datasets that TensorFlow Datasets (TFDS) has prepared in a directory, read without TensorFlow.

Finding a set, its splits and its fingerprint takes only its JSON files. TFDS itself is imported
where images are decoded or a set is prepared: on a cache hit it is not needed.
"""

import json
import os
import re
from pathlib import Path

import numpy as np

from capsjax.data.dataset import Examples, checked
from capsjax.data.progress import track

_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.+-]+))?(:(?P<version>\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def search_path(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """`data_dir` alone, or the directories in CAPSJAX_DATA_DIR and then TFDS's default."""
    if data_dir is not None:
        return [Path(data_dir).expanduser()]
    listed = os.environ.get("CAPSJAX_DATA_DIR", "").split(os.pathsep)
    default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    return [Path(directory).expanduser() for directory in [*listed, default] if directory]


class Prepared:
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
          ValueError: not an image classification set, images of different sizes, no random
            access, or bad values.
        """
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(self.where)
        image_key, label_key = _image_and_label_keys(builder.info, self.where)
        source = builder.as_data_source(split=split)
        images = []
        labels = []
        for example in track(source, f"decoding {builder.info.name} {split}", len(source)):
            images.append(example[image_key])
            labels.append(example[label_key])
        names = tuple(builder.info.features[label_key].names)
        return checked(np.stack(images), np.asarray(labels), names, f"{self.where}, {split}")


def find(name: str, directories: list[Path]) -> Prepared | None:
    """The newest version of a set (`NAME`, `NAME/CONFIG`, `NAME:VERSION`) in the first directory.

    Raises:
      ValueError: the set lies there in several configurations and `name` does not say which.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    for directory in directories:
        base = directory / match["name"] / (match["config"] or "")
        versions = _versions(base)
        if match["version"]:
            versions = [v for v in versions if v == match["version"]]
        if versions:
            return Prepared(base / versions[-1])
    return None


def _versions(base: Path) -> list[str]:
    if not base.is_dir():
        return []
    found = [
        path.parent.name
        for path in base.glob("*/dataset_info.json")
        if _VERSION.fullmatch(path.parent.name)
    ]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def _image_and_label_keys(info, where: str) -> tuple[str, str]:
    """The keys that the set names as input and label, or its only image and only class label."""
    import tensorflow_datasets as tfds

    features = info.features if isinstance(info.features, tfds.features.FeaturesDict) else {}
    images = [k for k, f in features.items() if isinstance(f, tfds.features.Image)]
    labels = [k for k, f in features.items() if isinstance(f, tfds.features.ClassLabel)]
    image, label = info.supervised_keys or (None, None)
    if image in images and label in labels:
        return image, label
    if len(images) == 1 and len(labels) == 1:
        return images[0], labels[0]
    raise ValueError(
        f"{where} is not an image classification set: expected one Image and one ClassLabel "
        f"feature, got images {images} and class labels {labels} among {list(features)}"
    )
