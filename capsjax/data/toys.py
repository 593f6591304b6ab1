"""Two sets that come with scikit-learn, split by fixed seed: they need no download."""

import numpy as np

from capsjax._extras import extra
from capsjax.data.dataset import Examples, Source
from capsjax.data.splits import TEST_FRACTION, TEST_SEED, with_test_split

MARGIN = 2  # pixels around the digits
SIZE = 28
CENTRES = ((-1.0, -0.577), (1.0, -0.577), (0.0, 1.155))  # of the blobs: a triangle around 0
LIMIT = 3.0  # of their coordinates, either way


class Digits(Source):
    """The 1,797 handwritten 8×8 digits, enlarged to 28×28."""

    where = "digits"

    def fingerprint(self, split: str) -> str:
        # The pixels have never changed between scikit-learn versions: only this file matters.
        return f"bicubic, margin {MARGIN}, held out {TEST_FRACTION} by seed {TEST_SEED}"

    def read(self, split: str) -> Examples:
        with extra("data"):
            from PIL import Image
            from sklearn.datasets import load_digits

        digits = load_digits()
        chosen = with_test_split(digits.target)[split]
        greys = np.round(digits.images[chosen] * (255 / 16)).astype(np.uint8)  # of 0 … 16
        size = (SIZE - 2 * MARGIN, SIZE - 2 * MARGIN)
        # PIL resamples 8-bit images in fixed point: the same bytes on every machine.
        large = (Image.fromarray(grey).resize(size, Image.Resampling.BICUBIC) for grey in greys)
        # Training may shift the ink into the margin.
        images = np.stack([np.pad(np.asarray(image), MARGIN) for image in large])[..., None]
        return Examples(images, digits.target[chosen].astype(np.int32), tuple("0123456789"))


class Blobs(Source):
    """Points of three normal distributions in the plane, as images of one pixel, two channels."""

    where = "blobs"

    def read(self, split: str) -> Examples:
        with extra("data"):
            from sklearn.datasets import make_blobs

        points, labels = make_blobs(3000, centers=CENTRES, cluster_std=0.5, random_state=0)
        chosen = with_test_split(labels)[split]
        channels = np.round((points[chosen] + LIMIT) / (2 * LIMIT) * 255).clip(0, 255)
        images = channels.astype(np.uint8).reshape(-1, 1, 1, 2)
        return Examples(images, labels[chosen].astype(np.int32), ("left", "right", "top"))
