"""`npz:PATH`: a user's arrays in a NumPy archive."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from capsjax.data.dataset import Examples, checked
from capsjax.data.splits import stratified_holdout

TEST_FRACTION = 0.2
SPLIT_SEED = 0
MAX_UNNAMED_CLASSES = 100_000
# What zipfile, zlib and NumPy raise for an archive that is damaged, encrypted, of an unknown
# compression, or claims more than the memory holds.
DAMAGE = (
    ValueError,
    EOFError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OverflowError,
    SyntaxError,
)


class Npz:
    """An archive of `images` and `labels`, without or with `test_images` and `test_labels`.

    Without a test set of its own, a fixed stratified fifth is the test split. `class_names` is
    an array of strings; without it the classes are numbered up to the largest label.
    """

    splits: tuple[str, ...] = ("train", "test")

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError if there is no file at `path`."""
        if not path.is_file():
            raise FileNotFoundError(
                f"name: no file {path}; expected npz:PATH, an archive with images and labels "
                "written by np.savez"
            )
        self.where = str(path.resolve())

    def fingerprint(self, split: str) -> None:
        """None: the arrays are there already, and a second copy would save nothing."""

    def read(self, split: str) -> Examples:
        """Reads a split; raises ValueError if the archive is damaged or holds something else."""
        with _opened(self.where) as archive:
            has_test_set = _has_test_set(set(archive.files), self.where)
            class_names = _class_names(archive, self.where)
            prefix = "test_" if split == "test" and has_test_set else ""
            images = _member(archive, f"{prefix}images", self.where)
            labels = _member(archive, f"{prefix}labels", self.where)
            if has_test_set:
                _check_one_size(archive, self.where)
        where = f"{self.where}, {prefix}images and {prefix}labels"
        examples = checked(images, labels, class_names, where)
        if has_test_set:
            return examples
        train, test = stratified_holdout(examples.labels, TEST_FRACTION, SPLIT_SEED)
        chosen = {"train": train, "test": test}[split]
        if chosen.size == 0:
            raise ValueError(f"{where}: too few for a test split; add test_images and test_labels")
        return Examples(examples.images[chosen], examples.labels[chosen], class_names)


def _opened(where: str) -> NpzFile:
    if not zipfile.is_zipfile(where):
        raise ValueError(f"{where}: not an .npz archive; write one with np.savez")
    try:
        return np.load(where, allow_pickle=False)
    except DAMAGE as error:
        raise ValueError(f"{where}: a damaged archive ({error}); write it again") from error


def _has_test_set(keys: set[str], where: str) -> bool:
    """Checks that all arrays are there; others beside them are left alone."""
    test_keys = {"test_images", "test_labels"}
    expected = {"images", "labels"} | (test_keys if keys & test_keys else set())
    if expected - keys:
        raise ValueError(
            f"{where}: no {' and '.join(sorted(expected - keys))} among its arrays {sorted(keys)}"
        )
    return bool(keys & test_keys)


def _check_one_size(archive: NpzFile, where: str) -> None:
    """Raises ValueError if what is trained and tested on differs in size: a network has one."""
    shapes = [_shape(archive, key, where) for key in ("images", "test_images")]
    # Without an axis for channels there is one.
    sizes = [(*shape[1:], 1) if len(shape) == 3 else shape[1:] for shape in shapes]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{where}: images and test_images have shapes {shapes[0]} and {shapes[1]}, "
            "expected the same size and number of channels"
        )


def _shape(archive: NpzFile, key: str, where: str) -> tuple[int, ...]:
    """The shape of an array by its header: the other split may be far larger than this one."""
    formats = np.lib.format
    assert archive.zip is not None  # it is open
    try:
        with archive.zip.open(f"{key}.npy") as file:
            if formats.read_magic(file) == (1, 0):
                return formats.read_array_header_1_0(file)[0]
            return formats.read_array_header_2_0(file)[0]
    except (KeyError, *DAMAGE) as error:
        raise _unreadable(key, where, error) from error


def _unreadable(key: str, where: str, error: Exception) -> ValueError:
    return ValueError(
        f"{where}: cannot read {key!r} ({error}); expected an undamaged array of numbers or "
        "strings, not of objects: convert and write it again"
    )


def _class_names(archive: NpzFile, where: str) -> tuple[str, ...]:
    """The stored names, or "0" up to the largest label of both sets."""
    if "class_names" in archive:
        names = _member(archive, "class_names", where)
        if names.ndim != 1 or names.dtype.kind != "U":
            raise ValueError(
                f"{where}: class_names are {names.dtype} of shape {names.shape}, expected a "
                "vector of strings"
            )
        return tuple(names.tolist())
    stored = [_member(archive, key, where) for key in ("labels", "test_labels") if key in archive]
    # Labels of other types are left for `checked` to complain about.
    largest = max((int(x.max()) for x in stored if x.size and x.dtype.kind in "iu"), default=-1)
    if largest >= MAX_UNNAMED_CLASSES:
        raise ValueError(
            f"{where}: labels go up to {largest}; if that is no mistake, add class_names"
        )
    return tuple(str(label) for label in range(largest + 1))


def _member(archive: NpzFile, key: str, where: str) -> np.ndarray:
    try:
        array = archive[key]
    except DAMAGE as error:
        raise _unreadable(key, where, error) from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{where}: {key!r} is not an array; write one with np.savez")
    return array
