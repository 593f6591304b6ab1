import numpy as np
import pytest

from capsjax.data import load


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [("digits", (28, 28, 1), (1438, 359)), ("blobs", (1, 1, 2), (2400, 600))],
)
def test_split_in_two_with_equal_shares(name, shape, sizes):
    train, test = (load(name, split) for split in ("train", "test"))
    for part, split, size in zip((train, test), ("train", "test"), sizes, strict=True):
        assert part.images.shape == (size, *shape)
        assert (part.images.dtype, part.labels.dtype) == (np.uint8, np.int32)
        assert (part.name, part.split, part.class_names) == (name, split, train.class_names)
    shares = np.bincount(test.labels) / (np.bincount(train.labels) + np.bincount(test.labels))
    assert np.all(np.abs(shares - 0.2) < 0.005)


def test_blobs_overlap_a_little():
    train, test = (load("blobs", split) for split in ("train", "test"))
    means = np.stack([train.images[train.labels == k].mean((0, 1, 2)) for k in range(3)])
    points = test.images[:, 0, 0].astype(float)
    nearest = np.linalg.norm(points[:, None] - means, axis=-1).argmin(-1)
    assert 0.9 < np.mean(nearest == test.labels) < 0.99
