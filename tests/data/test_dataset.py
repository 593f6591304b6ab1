import numpy as np
import pytest

from capsjax.data.dataset import Dataset, checked

IMAGES = np.zeros((3, 4, 5, 1), np.uint8)
LABELS = np.array([0, 1, 1])
NAMES = ("a", "b")


def test_grey_images_get_a_channel_and_labels_become_int32():
    examples = checked(IMAGES[..., 0], LABELS.astype(np.uint64), NAMES, "here")
    assert examples.images.shape == (3, 4, 5, 1)
    assert examples.labels.dtype == np.int32
    assert Dataset(*examples, name="x", split="train").num_classes == 2


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(np.float32), LABELS, "images are float32, expected uint8"),
        (IMAGES[0, 0], LABELS, r"images have shape \(5, 1\), expected \[N, H, W, C\]"),
        (IMAGES[:0], LABELS[:0], r"images have shape \(0, 4, 5, 1\), .* N > 0"),
        (IMAGES, LABELS[:2], r"labels are int64 of shape \(2,\), expected .* each of 3 images"),
        (IMAGES, LABELS.astype(np.float32), "labels are float32 of shape"),
        (IMAGES, np.array([0, 2, 2]), r"label 2 of example 1 \(and 1 more\) is out of range"),
        (IMAGES, np.array([0, 1, -1]), r"label -1 of example 2 .* expected 0 to 1"),
    ],
)
def test_wrong_arrays_are_named(images, labels, message):
    with pytest.raises(ValueError, match=f"^here: .*{message}"):
        checked(images, labels, NAMES, "here")
