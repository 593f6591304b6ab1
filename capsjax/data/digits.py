"""The 1,797 handwritten digits that come with scikit-learn: real data that needs no download."""

import numpy as np
from jaxtyping import Float, UInt8

from capsjax._extras import extra
from capsjax.data.dataset import Examples
from capsjax.data.splits import TEST_FRACTION, TEST_SEED, with_test_split

MARGIN = 2
SIZE = 28


class Digits:
    """8×8 digits enlarged to 28×28, with a fixed stratified split (80 % train, 20 % test)."""

    where = "digits"
    splits: tuple[str, ...] = ("train", "test")

    def fingerprint(self, split: str) -> str:
        # The pixels have never changed between scikit-learn versions: only this file matters.
        del split
        return f"bicubic, margin {MARGIN}, held out {TEST_FRACTION} by seed {TEST_SEED}"

    def read(self, split: str) -> Examples:
        with extra("data"):
            from sklearn.datasets import load_digits

        digits = load_digits()
        chosen = with_test_split(digits.target)[split]
        return Examples(
            images=np.stack([_enlarge(image) for image in digits.images[chosen]]),
            labels=digits.target[chosen].astype(np.int32),
            class_names=tuple(str(name) for name in digits.target_names),
        )


def _enlarge(image: Float[np.ndarray, "8 8"]) -> UInt8[np.ndarray, "28 28 1"]:
    """Enlarges values 0 … 16, bicubically.

    The ink reaches the edges of the 8×8 images; the black margin keeps it on the canvas when
    training shifts images by up to `MARGIN` pixels.
    """
    with extra("data"):
        from PIL import Image

    grey = np.round(image * (255 / 16)).astype(np.uint8)
    inside = SIZE - 2 * MARGIN
    # PIL resamples 8-bit images in fixed point: the same bytes on every machine.
    large = Image.fromarray(grey).resize((inside, inside), Image.Resampling.BICUBIC)
    return np.pad(np.asarray(large), MARGIN)[..., None]
