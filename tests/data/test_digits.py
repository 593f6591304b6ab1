import numpy as np

import capsjax.data


def test_all_digits_split_in_two_with_equal_shares():
    train, test = (capsjax.data.load("digits", split) for split in ("train", "test"))
    assert train.images.shape == (1438, 28, 28, 1)
    assert test.images.shape == (359, 28, 28, 1)
    assert train.images.dtype == np.uint8
    assert train.labels.dtype == np.int32
    assert train.class_names == test.class_names == tuple("0123456789")
    assert (train.name, train.split, train.num_classes) == ("digits", "train", 10)
    shares = np.bincount(test.labels) / (np.bincount(train.labels) + np.bincount(test.labels))
    assert np.all(np.abs(shares - 0.2) < 0.005)


def test_no_image_is_in_both_splits():
    train, test = (capsjax.data.load("digits", split).images for split in ("train", "test"))
    assert not {i.tobytes() for i in train} & {i.tobytes() for i in test}


def test_ink_fills_the_range_and_leaves_the_margin():
    images = capsjax.data.load("digits", "test").images
    assert images[:, 2:-2, 2:-2].max() == 255
    for border in (images[:, :2], images[:, -2:], images[:, :, :2], images[:, :, -2:]):
        assert border.max() == 0
