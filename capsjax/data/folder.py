"""`folder:PATH`: a user's images, one subfolder per class."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from capsjax.data.dataset import Examples, checked
from capsjax.data.images import AS_IT_IS, Fitting, is_image_name, read_fitted
from capsjax.data.progress import track
from capsjax.data.splits import with_test_split

LISTED = 10  # broken files in a warning

Files = list[tuple[Path, int]]  # with their labels


class Survey(NamedTuple):
    """What is in a folder."""

    counts: dict[str, dict[str, int]]  # images that can be read, by split and class
    sizes: Counter[tuple[int, ...]]  # how many have each (height, width, channels)
    broken: list[str]  # messages about the files that have the name of an image and cannot be read
    strays: list[Path]  # other files, which are ignored


class Folder:
    """PATH/CLASS/IMAGE, split by fixed seed, or PATH/SPLIT/CLASS/IMAGE if there is PATH/train.

    Classes are the subfolders in sorted order (of `train`, where there are splits). Hidden files,
    and files without the ending of an image, are ignored; images that cannot be read are skipped
    with a warning that lists them.

    Attributes:
      where: the path and the conversion of its images, for messages and the cache.
      splits: their names.
      class_names: in the order of the labels.
    """

    def __init__(self, path: Path, fitting: Fitting = AS_IT_IS) -> None:
        """Lists the files; raises ValueError where they are arranged in another way."""
        if not path.is_dir():
            raise FileNotFoundError(
                f"name: no directory {path}; expected folder:PATH with one subfolder per class"
            )
        self._path, self._fitting = path, fitting
        self.where = str(path.resolve())
        if fitting != AS_IT_IS:
            self.where += f" as {fitting.height}×{fitting.width}×{fitting.channels} {fitting.fit}"
        self._broken: list[str] = []
        self._strays: list[Path] = []
        if (path / "train").is_dir() and _subfolders(path / "train"):
            self.class_names = _class_names(path / "train")
            self._files = {split.name: self._list(split) for split in _subfolders(path)}
        else:
            self.class_names = _class_names(path)
            files = self._list(path)
            chosen = with_test_split(np.array([label for _, label in files], int))
            self._files = {split: [files[i] for i in chosen[split]] for split in chosen}
        self.splits = tuple(self._files)

    def fingerprint(self, split: str) -> str:
        """Returns a hash of the split's file names, sizes and times, and of the conversion."""
        digest = hashlib.sha256(repr((self.class_names, *astuple(self._fitting))).encode())
        for file, _ in self._files[split]:
            stat = file.stat()
            name = file.relative_to(self._path).as_posix()
            digest.update(repr((name, stat.st_size, stat.st_mtime_ns)).encode())
        return digest.hexdigest()

    def read(self, split: str) -> Examples:
        """Decodes a split; raises ValueError unless there are images of one size in every class."""
        files = self._files[split]
        where = f"{self.where}, split {split!r}"
        if not files:
            raise ValueError(f"{where}: no images in it; give each class two or more")
        broken = list(self._broken) if split == self.splits[0] else []
        total = len(files) + len(broken)
        decoded: list[tuple[Path, int, UInt8[np.ndarray, "h w c"]]] = []
        for file, label, image in self._decoded(files, "decoding", self._fitting, broken):
            decoded.append((file, label, image))
            first, _, expected = decoded[0]
            if image.shape != expected.shape:
                raise ValueError(
                    f"{file}: has [H, W, C] = {list(image.shape)} and {first} has "
                    f"{list(expected.shape)}. Say what to make of all: --config.data.size=32 "
                    "--config.data.channels=3 (or 1, for grey), and --config.data.fit=crop to "
                    "crop where pad would be black"
                )
        for label in sorted({label for _, label in files} - {label for _, label, _ in decoded}):
            raise ValueError(
                f"{where}: of class {self.class_names[label]} no image can be read: {broken[0]}"
            )
        if broken:
            some = "\n  ".join(broken[:LISTED])
            more = f"\n  and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
            warnings.warn(
                f"{where}: {len(broken)} of {total} images are skipped:\n  {some}{more}",
                RuntimeWarning,
                stacklevel=5,
            )
        _, labels, images = zip(*decoded, strict=True)
        return checked(np.stack(images), np.array(labels), self.class_names, where)

    def survey(self) -> Survey:
        """Reads every image and says what is in the folder."""
        counts, broken = {}, list(self._broken)
        sizes: Counter[tuple[int, ...]] = Counter()
        for split, files in self._files.items():
            counts[split] = dict.fromkeys(self.class_names, 0)
            for _, label, image in self._decoded(files, "reading", AS_IT_IS, broken):
                sizes[image.shape] += 1
                counts[split][self.class_names[label]] += 1
        return Survey(counts, sizes, broken, self._strays)

    def _decoded(
        self, files: Files, verb: str, fitting: Fitting, broken: list[str]
    ) -> Iterator[tuple[Path, int, UInt8[np.ndarray, "h w c"]]]:
        """Yields each readable image with file and label; messages on others go to `broken`."""
        for file, label in track(files, f"{verb} {self._path.name}", len(files)):
            try:
                image = read_fitted(file, fitting).pixels
            except ValueError as error:
                broken.append(str(error))
                continue
            yield file, label, image

    def _list(self, root: Path) -> Files:
        """Lists the images under `root`, sorted; other files go to the broken and the strays."""
        listed = []
        self._strays += _visible_files(root)
        for folder in _subfolders(root):
            if folder.name not in self.class_names:
                raise ValueError(
                    f"{folder}: {folder.name!r} is not a class of {self._path / 'train'}, expected "
                    f"one of {', '.join(self.class_names)}"
                )
            if _subfolders(folder):
                raise ValueError(
                    f"{folder}: has the folder {_subfolders(folder)[0].name!r} inside; expected "
                    "only images in a class folder"
                )
            images = []
            for file in _visible_files(folder):
                if not is_image_name(file):
                    self._strays.append(file)
                elif file.is_file():
                    images.append(file)
                else:
                    what = "not an image file but a dangling link, pipe or device"
                    self._broken.append(f"{file}: {what}")
            if not images:
                raise ValueError(
                    f"{folder}: class folder without images; add some or remove the folder"
                )
            listed += [(file, self.class_names.index(folder.name)) for file in images]
        return listed


def _visible(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _visible_files(path: Path) -> list[Path]:
    """Lists what is not a directory, dangling links and devices included."""
    return [p for p in _visible(path) if not p.is_dir()]


def _subfolders(path: Path) -> list[Path]:
    return [p for p in _visible(path) if p.is_dir()]


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
