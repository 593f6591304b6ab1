"""Points of three classes in the plane: a data set for toy experiments that needs no download."""

import numpy as np

from capsjax._extras import extra
from capsjax.data.dataset import Examples
from capsjax.data.splits import with_test_split

NUM_POINTS = 3000
# The corners of a triangle with sides of 2, around 0.
CENTRES = ((-1.0, -0.577), (1.0, -0.577), (0.0, 1.155))
DEVIATION = 0.5
LIMIT = 3.0
SEED = 0


class Blobs:
    """A normal distribution for each class; a point is an image of one pixel and two channels.

    The coordinates from −3 to 3 are the channels' values from 0 to 255. 80 % of the points are to
    train on, 20 % to test on.
    """

    where = "blobs"
    splits: tuple[str, ...] = ("train", "test")

    def fingerprint(self, split: str) -> None:
        """Returns None: a cache would not be faster."""

    def read(self, split: str) -> Examples:
        with extra("data"):
            from sklearn.datasets import make_blobs

        points, labels = make_blobs(
            NUM_POINTS, centers=CENTRES, cluster_std=DEVIATION, random_state=SEED
        )
        chosen = with_test_split(labels)[split]
        channels = np.round((points[chosen] + LIMIT) / (2 * LIMIT) * 255).clip(0, 255)
        return Examples(
            images=channels.astype(np.uint8).reshape(-1, 1, 1, 2),
            labels=labels[chosen].astype(np.int32),
            class_names=("left", "right", "top"),
        )
