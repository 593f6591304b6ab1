import numpy as np
import pytest

import capsjax.data
from tests.data.small_datasets import random_images

IMAGES = random_images(20)
LABELS = np.arange(20) % 4


def save(tmp_path, **arrays) -> str:
    np.savez(tmp_path / "x.npz", **arrays)
    return f"npz:{tmp_path}/x.npz"


def test_fixed_stratified_split(tmp_path, cache_dir):
    name = save(tmp_path, images=IMAGES[..., 0], labels=LABELS.astype(np.uint8), angle=LABELS)
    train, test = (capsjax.data.load(name, split) for split in ("train", "test"))
    assert train.class_names == ("0", "1", "2", "3")
    assert np.bincount(train.labels).tolist() == [4, 4, 4, 4]
    assert np.bincount(test.labels).tolist() == [1, 1, 1, 1]
    together = {i.tobytes() for i in np.concatenate([train.images, test.images])}
    assert together == {i.tobytes() for i in IMAGES}
    assert not cache_dir.exists()


def test_test_set_of_its_own_and_class_names(tmp_path):
    names = np.array(["a", "b", "c", "d"], bytes)
    name = save(
        tmp_path,
        images=IMAGES[:15],
        labels=LABELS[:15],
        test_images=IMAGES[15:],
        test_labels=LABELS[15:],
        class_names=names,
    )
    test = capsjax.data.load(name, "test")
    np.testing.assert_array_equal(test.images, IMAGES[15:])
    np.testing.assert_array_equal(test.labels, LABELS[15:])
    assert test.class_names == ("a", "b", "c", "d")
    assert len(capsjax.data.load(name, "train").images) == 15


def test_classes_are_counted_over_both_sets(tmp_path):
    arrays = {"images": IMAGES, "labels": LABELS, "test_images": IMAGES[:1]}
    name = save(tmp_path, **arrays, test_labels=np.array([6]))
    assert capsjax.data.load(name, "train").num_classes == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "has images, and lacks labels"),
        ({"test_images": IMAGES}, "has images, labels, test_images, and lacks test_labels"),
        ({"test_images": IMAGES[:, :3], "test_labels": LABELS}, "and test_images differ in size"),
        ({"images": IMAGES / 255}, "images are float64, expected uint8"),
        ({"images": IMAGES // 16}, "pixels reach only 15 of 255; scale"),
        ({"labels": LABELS + 10**9}, "labels go up to 1000000003; if that is"),
        ({"labels": LABELS.astype(object)}, "Object arrays cannot be loaded"),
        ({"labels": LABELS + 1}, "labels begin at 1, not 0"),
        ({"class_names": np.array(["a", "b"])}, r"label 2 of example 2 \(and 9 more\) is out of"),
        ({"class_names": np.array(["a", "b", "a", " "])}, "class names must differ"),
    ],
)
def test_unfit_arrays_are_named(tmp_path, changes, message):
    arrays = {"images": IMAGES, "labels": LABELS} | changes
    name = save(tmp_path, **{key: x for key, x in arrays.items() if x is not None})
    with pytest.raises(ValueError, match=rf"x\.npz.*{message}"):
        capsjax.data.load(name, "train")


def test_unfit_files_are_named(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(FileNotFoundError, match=r"x\.npz does not exist"):
        capsjax.data.load(f"npz:{path}", "train")
    with path.open("wb") as file:
        np.save(file, IMAGES)
    with pytest.raises(ValueError, match=r"x\.npz: not an \.npz archive"):
        capsjax.data.load(f"npz:{path}", "train")
    save(tmp_path, images=IMAGES, labels=LABELS)
    content = bytearray(path.read_bytes())
    content[content.index(IMAGES[3].tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.npz: Bad CRC-32 for file 'images"):
        capsjax.data.load(f"npz:{path}", "train")


def test_too_few_for_a_test_split(tmp_path):
    name = save(tmp_path, images=IMAGES[:4], labels=LABELS[:4])
    with pytest.raises(ValueError, match="too few for a test split"):
        capsjax.data.load(name, "test")
