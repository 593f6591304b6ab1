"""`npz:PATH`: a user's arrays in a NumPy archive."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from capsjax.data.dataset import Examples, checked
from capsjax.data.splits import with_test_split

MAX_UNNAMED_CLASSES = 100_000


class Npz:
    """An archive of `images` and `labels`, without or with `test_images` and `test_labels`.

    Without a test set of its own, a fixed stratified fifth is the test split. `class_names` is
    an array of strings; without it the classes are numbered up to the largest label.
    """

    splits: tuple[str, ...] = ("train", "test")

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(
                f"name: no file {path}; expected npz:PATH, an archive with images and labels "
                "written by np.savez"
            )
        self.where = str(path.resolve())

    def fingerprint(self, split: str) -> None:
        """Returns None: the arrays are there already, and a second copy would save nothing."""

    def read(self, split: str) -> Examples:
        """Reads a split; raises ValueError if the archive is damaged or holds something else."""
        if not zipfile.is_zipfile(self.where):
            raise ValueError(f"{self.where}: not an .npz archive; write one with np.savez")
        with self._reading("the archive"):
            archive = np.load(self.where, allow_pickle=False)
        with archive:
            return self._examples(archive, split)

    def _examples(self, archive: NpzFile, split: str) -> Examples:
        keys = set(archive.files)  # arrays of other names are ignored
        test_keys = {"test_images", "test_labels"}
        has_test_set = bool(keys & test_keys)
        if missing := ({"images", "labels"} | (test_keys if has_test_set else set())) - keys:
            raise ValueError(
                f"{self.where}: no {' and '.join(sorted(missing))} among its arrays {sorted(keys)}"
            )
        class_names = self._class_names(archive)
        prefix = "test_" if split == "test" and has_test_set else ""
        images, labels = (self._array(archive, f"{prefix}{name}") for name in ("images", "labels"))
        where = f"{self.where}, {prefix}images and {prefix}labels"
        examples = checked(images, labels, class_names, where)
        if has_test_set:
            self._check_one_size(archive)
            return examples
        chosen = with_test_split(examples.labels)[split]
        if chosen.size == 0:
            raise ValueError(f"{where}: too few for a test split; add test_images and test_labels")
        return Examples(examples.images[chosen], examples.labels[chosen], class_names)

    def _check_one_size(self, archive: NpzFile) -> None:
        """Raises ValueError if train and test images differ in size: a network has one input."""
        shapes = [self._shape(archive, key) for key in ("images", "test_images")]
        # Images without an axis for channels have one channel.
        sizes = [(*shape[1:], 1) if len(shape) == 3 else shape[1:] for shape in shapes]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{self.where}: images and test_images have shapes {shapes[0]} and {shapes[1]}, "
                "expected the same size and number of channels"
            )

    def _shape(self, archive: NpzFile, key: str) -> tuple[int, ...]:
        """Reads the shape of an array from its header: the array may be larger than the memory."""
        formats = np.lib.format
        readers = {(1, 0): formats.read_array_header_1_0, (2, 0): formats.read_array_header_2_0}
        assert archive.zip is not None  # it is open
        with self._reading(repr(key)), archive.zip.open(f"{key}.npy") as file:
            return readers[formats.read_magic(file)](file)[0]

    def _class_names(self, archive: NpzFile) -> tuple[str, ...]:
        """Returns the stored names, or "0" up to the largest label of both sets."""
        if "class_names" in archive:
            names = self._array(archive, "class_names")
            if names.ndim != 1 or names.dtype.kind != "U":
                raise ValueError(
                    f"{self.where}: class_names are {names.dtype} of shape {names.shape}, expected "
                    "a vector of strings"
                )
            return tuple(names.tolist())
        stored = [self._array(archive, k) for k in ("labels", "test_labels") if k in archive]
        # `checked` refuses labels of other types.
        largest = max((int(x.max()) for x in stored if x.size and x.dtype.kind in "iu"), default=-1)
        if largest >= MAX_UNNAMED_CLASSES:
            raise ValueError(
                f"{self.where}: labels go up to {largest}; if that is right, add class_names"
            )
        return tuple(str(label) for label in range(largest + 1))

    def _array(self, archive: NpzFile, key: str) -> np.ndarray:
        with self._reading(repr(key)):
            return np.asarray(archive[key])

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # zipfile, zlib and NumPy raise many types for damaged archives
            raise ValueError(
                f"{self.where}: cannot read {what} ({error}); expected undamaged arrays of numbers "
                "or strings, not of objects: convert and write it again"
            ) from error
