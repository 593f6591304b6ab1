"""`npz:PATH`: a user's arrays in a NumPy archive."""

import zipfile
from pathlib import Path

import numpy as np

from capsjax.data.dataset import Examples, Source, checked
from capsjax.data.splits import with_test_split

MAX_UNNAMED_CLASSES = 100_000
_ARRAYS = ("images", "labels")


class Npz(Source):
    """An archive of `images` and `labels`, and optionally `test_images` and `test_labels`.

    Without test images, a fixed stratified fifth is the test split. `class_names`, optional too, is
    an array of strings; without it the classes are numbered up to the largest label.
    """

    def __init__(self, path: Path) -> None:
        self.where = str(path.resolve(strict=True))

    def read(self, split: str) -> Examples:
        if not zipfile.is_zipfile(self.where):
            raise ValueError(f"{self.where}: not an .npz archive; write one with np.savez")
        try:
            with np.load(self.where, allow_pickle=False) as archive:
                own_test = "test_images" in archive
                prefixes = ("", "test_") if own_test else ("",)
                expected = {f"{prefix}{what}" for prefix in prefixes for what in _ARRAYS}
                if missing := sorted(expected - {*archive}):
                    raise ValueError(f"has {', '.join(archive)}, and lacks {', '.join(missing)}")
                images = {prefix: np.asarray(archive[f"{prefix}images"]) for prefix in prefixes}
                labels = {prefix: np.asarray(archive[f"{prefix}labels"]) for prefix in prefixes}
                # Images without an axis for channels have one channel.
                sizes = {(*x.shape[1:], 1)[:3] for x in images.values()}
                if len(sizes) > 1:
                    raise ValueError(f"images and test_images differ in size: {sorted(sizes)}")
                if "class_names" in archive:
                    class_names = tuple(archive["class_names"].astype(str).tolist())
                else:
                    class_names = _numbered([*labels.values()])
        except Exception as error:  # zipfile, zlib and NumPy raise many types for damaged archives
            raise ValueError(f"{self.where}: {error}") from error
        prefix = "test_" if own_test and split == "test" else ""
        where = f"{self.where}, {prefix}images"
        examples = checked(images[prefix], labels[prefix], class_names, where)
        if 0 < (brightest := images[prefix].max()) <= 16:  # counts, or a mask
            raise ValueError(f"{where}: pixels reach only {brightest} of 255; scale them first")
        if own_test:
            return examples
        chosen = with_test_split(examples.labels)[split]
        if chosen.size == 0:
            raise ValueError(f"{where}: too few for a test split; add test_images and test_labels")
        return Examples(examples.images[chosen], examples.labels[chosen], class_names)


def _numbered(labels: list[np.ndarray]) -> tuple[str, ...]:
    # `checked` refuses labels of other types.
    largest = max((int(x.max()) for x in labels if x.size and x.dtype.kind in "iu"), default=-1)
    if largest >= MAX_UNNAMED_CLASSES:
        raise ValueError(f"labels go up to {largest}; if that is right, add class_names")
    if largest > 0 and all(x.min() > 0 for x in labels if x.size):
        raise ValueError("labels begin at 1, not 0; if that is right, add class_names")
    return tuple(str(label) for label in range(largest + 1))
