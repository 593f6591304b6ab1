"""`folder:PATH`: a user's images, one subfolder per class."""

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from capsjax._files import digest
from capsjax.data.dataset import Examples, Source, checked, fingerprint, track
from capsjax.data.images import AS_IT_IS, Fitting, is_image_name, read_fitted
from capsjax.data.splits import with_test_split

LISTED = 10  # broken files in a warning

Files = list[tuple[Path, int]]  # with their labels


class Survey(NamedTuple):
    """What is in a folder."""

    counts: dict[str, dict[str, int]]  # images that can be read, by split and class
    sizes: Counter[tuple[int, ...]]  # how many have each (height, width, channels)
    broken: list[str]  # messages about the images that cannot be read
    strays: list[Path]  # other files, which are ignored


class Folder(Source):
    """PATH/CLASS/IMAGE, split by hashes of paths, or PATH/SPLIT/CLASS/IMAGE.

    It has splits of its own if there is PATH/train, or else PATH/test. Classes are the subfolders
    in sorted order, of that split if there are splits. Images that cannot be read are skipped with
    a warning that lists them; other files are ignored.
    """

    def __init__(self, path: Path, fitting: Fitting = AS_IT_IS) -> None:
        path = path.resolve(strict=True)
        self._path, self._fitting = path, fitting
        self.where = str(path)
        if fitting != AS_IT_IS:
            self.where += f" as {fitting.height}×{fitting.width}×{fitting.channels} {fitting.fit}"
        self._strays: list[Path] = []
        splits = [path / "train", path / "test"]
        self._root = next((s for s in splits if s.is_dir() and _subfolders(s)), path)
        classes = _subfolders(self._root)
        if not classes:
            raise ValueError(f"{path}: no subfolders; expected one per class, with its images")
        self.class_names = tuple(folder.name for folder in classes)
        if self._root in splits:
            self._files = {split.name: self._list(split) for split in _subfolders(path)}
        else:
            files = self._list(path)
            # By name, so that adding a picture moves at most one other of its class.
            names = [digest(os.fsencode(file.relative_to(path))) for file, _ in files]
            words = np.array([int(name[:16], 16) for name in names], np.uint64)
            chosen = with_test_split(np.array([label for _, label in files], int), words)
            self._files = {split: [files[i] for i in chosen[split]] for split in chosen}
        self.splits = tuple(split for split, files in self._files.items() if files)

    def fingerprint(self, split: str) -> str:
        files = (file for file, _ in self._files[split])
        return fingerprint(files, self.class_names, self._fitting)

    def read(self, split: str) -> Examples:
        """Decodes a split; raises ValueError unless there are images of one size in every class."""
        files = self._files[split]
        where = f"{self.where}, split {split!r}"
        broken: list[str] = []
        decoded: list[tuple[Path, int, UInt8[np.ndarray, "h w c"]]] = []
        for file, label, image in self._decoded(files, "decoding", self._fitting, broken):
            decoded.append((file, label, image))
            first, _, expected = decoded[0]
            if image.shape != expected.shape:
                raise ValueError(
                    f"{file}: has [H, W, C] = {list(image.shape)} and {first} has "
                    f"{list(expected.shape)}. Say what to make of all: --config.data.size=32 "
                    "--config.data.channels=3 (or 1, for grey), and --config.data.fit=crop to "
                    "crop where pad would be black. In Python: fitting=images.Fitting(32, 32, 3)"
                )
        if lost := {label for _, label in files} - {label for _, label, _ in decoded}:
            said = f"no image of {self.class_names[min(lost)]} can be read:"
            raise ValueError("\n  ".join([said, *broken[:LISTED]]))
        if broken:
            said = f"{where}: {len(broken)} of {len(files)} images are skipped:"
            warnings.warn("\n  ".join([said, *broken[:LISTED]]), RuntimeWarning, stacklevel=5)
        _, labels, images = zip(*decoded, strict=True)
        return checked(np.stack(images), np.array(labels), self.class_names, where)

    def survey(self) -> Survey:
        """Reads every image and says what is in the folder."""
        counts = {split: dict.fromkeys(self.class_names, 0) for split in self.splits}
        sizes: Counter[tuple[int, ...]] = Counter()
        broken: list[str] = []
        for split, files in self._files.items():
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
                yield file, label, read_fitted(file, fitting).pixels
            except ValueError as error:
                broken.append(str(error))

    def _list(self, root: Path) -> Files:
        """Lists the images under `root`, sorted; other files go to the strays."""
        listed = []
        self._strays += [path for path in _visible(root) if not path.is_dir()]
        for folder in _subfolders(root):
            if folder.name not in self.class_names:
                raise ValueError(f"{folder} is not a class of {self._root}")
            files = _visible(folder)
            images = [file for file in files if is_image_name(file) and file.is_file()]
            if not images:
                raise ValueError(f"{folder}: no images; add some or remove the folder")
            self._strays += sorted(set(files).difference(images))
            listed += [(file, self.class_names.index(folder.name)) for file in images]
        return listed


def _visible(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _subfolders(path: Path) -> list[Path]:
    return [p for p in _visible(path) if p.is_dir()]
