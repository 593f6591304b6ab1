import numpy as np

import capsjax.data


def test_points_of_three_classes_that_overlap_a_little():
    train, test = (capsjax.data.load("blobs", split) for split in ("train", "test"))
    assert train.images.shape == (2400, 1, 1, 2)
    assert test.images.shape == (600, 1, 1, 2)
    assert np.bincount(test.labels).tolist() == [200, 200, 200]
    means = np.stack([train.images[train.labels == k].mean((0, 1, 2)) for k in range(3)])
    points = test.images[:, 0, 0].astype(float)
    nearest = np.linalg.norm(points[:, None] - means, axis=-1).argmin(-1)
    assert 0.9 < np.mean(nearest == test.labels) < 0.99
