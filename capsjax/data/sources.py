"""Datasets by name."""

import os
from functools import partial
from pathlib import Path

from capsjax.data import tfds
from capsjax.data.affnist_files import AffNISTFiles
from capsjax.data.cache import cached
from capsjax.data.dataset import Dataset, Source
from capsjax.data.folder import Folder
from capsjax.data.images import AS_IT_IS, Fitting
from capsjax.data.lazy_images import within
from capsjax.data.npz import Npz
from capsjax.data.toys import Blobs, Digits

# Names of the split that the best checkpoint is chosen by, where a set has one.
VALIDATION_SPLITS = ("validation", "val", "valid")
BUILT_IN = ("digits", "blobs", "mnist", "fashion_mnist", "cifar10", "cifar100")
_INSTALLED = {"digits": Digits, "blobs": Blobs}
_OF_A_USER = {"folder": Folder, "npz": Npz, "affnist": AffNISTFiles}


def names() -> tuple[str, ...]:
    """Returns the built-in names of `load`; others are those of TFDS sets or a user's files."""
    return BUILT_IN


def load(
    name: str,
    split: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    device_budget_mb: float | None = None,
    fitting: Fitting = AS_IT_IS,
) -> Dataset:
    """Loads one split of an image classification set.

    Decoded images are cached on disk (`capsjax.data.cache`). A TFDS set that is not prepared yet is
    downloaded and prepared if TensorFlow is installed.

    Args:
      name: "digits" (scikit-learn's, enlarged to 28×28), "blobs" (points of three classes), a TFDS
        dataset such as "mnist" or "emnist/letters", "folder:PATH" (one subfolder of images per
        class), "npz:PATH" (arrays `images` and `labels`) or "affnist:PATH" (the published affNIST
        files).
      split: "train" or "test", or any other split that the set has.
      data_dir: the directory that holds prepared TFDS datasets. None means the directories in
        the environment variable CAPSJAX_DATA_DIR (separated as in PATH), then TFDS's default.
      device_budget_mb: images that take more than this many MB (of 2**20 bytes) when decoded come
        as `capsjax.data.lazy_images.LazyImages`, which is fed to a device in batches. The
        images of a TFDS set stay in their files; only the labels are read. None: no limit.
      fitting: how to convert the images of a "folder:PATH"; by default they stay as they are.

    Raises:
      FileNotFoundError: the files (and TensorFlow, to prepare those of TFDS) are not there.
      ValueError: unknown name or split, or a set that is damaged or not image classification.
    """
    source = _open(name, data_dir, fitting, device_budget_mb)
    if split not in source.splits:
        raise ValueError(f"split: {name!r} has no split {split!r}, only {', '.join(source.splits)}")
    read, fingerprint = partial(source.read, split), source.fingerprint(split)
    examples = cached(f"{source.where} {split}", fingerprint, read) if fingerprint else read()
    images = within(examples.images, device_budget_mb)
    return Dataset(images, *examples[1:], name=name, split=split, splits=source.splits)


def default_split(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """Returns the split to evaluate networks on: "test", else a validation split, None for none."""
    splits = _open(name, data_dir).splits
    return next((split for split in ("test", *VALIDATION_SPLITS) if split in splits), None)


def _open(
    name: str,
    data_dir: str | os.PathLike[str] | None,
    fitting: Fitting = AS_IT_IS,
    device_budget_mb: float | None = None,
) -> Source:
    if fitting != AS_IT_IS and not name.startswith("folder:"):
        raise ValueError(f"fitting: only images of a folder:PATH are made to fit, not {name!r}")
    if name in _INSTALLED:
        return _INSTALLED[name]()
    kind, colon, path = name.partition(":")
    if colon and kind in _OF_A_USER:
        if not path:
            raise ValueError(f"name: {name!r} has no path: write {kind}:PATH")
        files = Path(os.path.expanduser(path)).absolute()
        if not files.exists():
            raise FileNotFoundError(f"name: {kind}:{files} does not exist")
        return Folder(files, fitting) if kind == "folder" else _OF_A_USER[kind](files)
    directories = tfds.search_path(data_dir)
    prepared = tfds.find(name, directories) or tfds.download(name, directories, known=BUILT_IN)
    return tfds.PreparedDataset(prepared, device_budget_mb)
