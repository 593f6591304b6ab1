"""`folder:PATH`: a user's images, one subfolder per class."""

import hashlib
from pathlib import Path

import numpy as np

from capsjax.data.dataset import Examples, checked
from capsjax.data.images import read_image
from capsjax.data.progress import track
from capsjax.data.splits import stratified_holdout

TEST_FRACTION = 0.2
SPLIT_SEED = 0


class Folder:
    """PATH/CLASS/IMAGE, split by fixed seed, or PATH/SPLIT/CLASS/IMAGE if there is PATH/train.

    Classes are the subfolders in sorted order (of `train`, where there are splits). Hidden files
    and files beside the class folders are left alone; every other file must be an image.
    """

    def __init__(self, path: Path) -> None:
        """Lists the files.

        Raises:
          FileNotFoundError: no such directory.
          ValueError: no class folders, an empty one, folders inside, or a split with a class
            that `train` does not have.
        """
        if not path.is_dir():
            raise FileNotFoundError(
                f"name: no directory {path}; expected folder:PATH with one subfolder per class"
            )
        self.where = str(path.resolve())
        self._path = path
        if (path / "train").is_dir() and _subfolders(path / "train"):
            self.class_names = _class_names(path / "train")
            self._files = {split.name: self._list(split) for split in _subfolders(path)}
        else:
            self.class_names = _class_names(path)
            self._files = self._divide(self._list(path))
        self.splits = tuple(self._files)

    def fingerprint(self, split: str) -> str:
        """A hash of the split's file names, sizes and times."""
        digest = hashlib.sha256(repr(self.class_names).encode())
        for file, _ in self._files[split]:
            stat = file.stat()
            name = file.relative_to(self._path).as_posix()
            digest.update(repr((name, stat.st_size, stat.st_mtime_ns)).encode())
        return digest.hexdigest()

    def read(self, split: str) -> Examples:
        """Decodes a split.

        Raises:
          ValueError: a file is not a readable image, or differs in size from the first.
        """
        files = [file for file, _ in self._files[split]]
        if not files:
            raise ValueError(
                f"{self.where}, split {split!r}: no images in it; give each class two or more"
            )
        first = read_image(files[0])
        images = np.empty((len(files), *first.shape), np.uint8)
        for i, file in enumerate(track(files, f"decoding {self._path.name}", len(files))):
            image = read_image(file)
            if image.shape != first.shape:
                raise ValueError(
                    f"{file}: has [H, W, C] = {list(image.shape)} and {files[0]} has "
                    f"{list(first.shape)}; expected images of one size and kind: convert them"
                )
            images[i] = image
        labels = np.array([label for _, label in self._files[split]])
        return checked(images, labels, self.class_names, f"{self.where}, split {split!r}")

    def _list(self, root: Path) -> list[tuple[Path, int]]:
        """All (file, label) under `root`, in sorted order."""
        listed = []
        for folder in _subfolders(root):
            if folder.name not in self.class_names:
                raise ValueError(
                    f"{folder}: {folder.name!r} is no class of {self._path / 'train'}, expected "
                    f"one of {', '.join(self.class_names)}"
                )
            if _subfolders(folder):
                raise ValueError(
                    f"{folder}: has the folder {_subfolders(folder)[0].name!r} inside; expected "
                    "only images in a class folder"
                )
            files = [f for f in sorted(folder.iterdir()) if not f.name.startswith(".")]
            if not files:
                raise ValueError(
                    f"{folder}: class folder without images; add some or remove the folder"
                )
            listed += [(file, self.class_names.index(folder.name)) for file in files]
        return listed

    @staticmethod
    def _divide(files: list[tuple[Path, int]]) -> dict[str, list[tuple[Path, int]]]:
        labels = np.array([label for _, label in files])
        train, test = stratified_holdout(labels, TEST_FRACTION, SPLIT_SEED)
        return {"train": [files[i] for i in train], "test": [files[i] for i in test]}


def _subfolders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def _class_names(path: Path) -> tuple[str, ...]:
    names = tuple(folder.name for folder in _subfolders(path))
    if not names:
        raise ValueError(f"{path}: no subfolders; expected one per class, with its images")
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{path}: the folder name {name!r} is not UTF-8: rename it") from None
    return names
