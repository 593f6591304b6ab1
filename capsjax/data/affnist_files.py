"""`affnist:PATH`: the published files of https://www.cs.toronto.edu/~tijmen/affNIST.

A file is MATLAB's: `affNISTdata.image` is uint8 [1600, N], an image a column, `label_int` [1, N].
"""

from pathlib import Path

import numpy as np

from capsjax.data.dataset import Examples, Source, checked, fingerprint, track

SIZE = 40
DIGITS = tuple("0123456789")
# By split, the names that files or folders of numbered files have in the archives, best first.
_PARTS = {
    "train": ("training_and_validation", "training"),
    "validation": ("validation",),
    "test": ("test",),
}


class AffNISTFiles(Source):
    """PATH/test.mat, or PATH/test_batches/1.mat and so on; the same for the other splits.

    The training split is `training_and_validation`, or `training` where that is all there is.
    """

    def __init__(self, path: Path) -> None:
        path = path.resolve()
        self.where = str(path)
        self._files = {split: found for split in _PARTS if (found := _files(path, split))}
        self.splits = tuple(self._files)
        if not self.splits:
            raise FileNotFoundError(f"name: {path} holds no affNIST files such as test.mat")

    def fingerprint(self, split: str) -> str:
        return fingerprint(self._files[split])

    def read(self, split: str) -> Examples:
        files = self._files[split]
        parts = [_read(file) for file in track(files, "reading affNIST", len(files))]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return checked(images, labels, DIGITS, f"{self.where}, split {split!r}")


def _files(path: Path, split: str) -> list[Path]:
    for part in _PARTS[split]:
        if (path / f"{part}.mat").is_file():
            return [path / f"{part}.mat"]
        if numbered := list((path / f"{part}_batches").glob("[0-9]*.mat")):
            return sorted(numbered, key=lambda file: int(file.stem))  # 10.mat after 9.mat
    return []


def _read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat

    try:
        data = loadmat(file, variable_names=["affNISTdata"])["affNISTdata"][0, 0]
        return data["image"].T.reshape(-1, SIZE, SIZE), data["label_int"].ravel()
    except Exception as error:  # scipy and zlib raise many types for damaged files
        raise ValueError(
            f"{file}: damaged, or not an affNIST file with affNISTdata.image [{SIZE**2}, N] and "
            f"label_int ({type(error).__name__}: {error})"
        ) from error
