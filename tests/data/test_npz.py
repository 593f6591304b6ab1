import io
import os
import zipfile

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
    names = np.array(["a", "b", "c", "d"])
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
    assert test.class_names == tuple(names)
    assert len(capsjax.data.load(name, "train").images) == 15


def test_classes_are_counted_over_both_sets(tmp_path):
    arrays = {"images": IMAGES, "labels": LABELS, "test_images": IMAGES[:1]}
    name = save(tmp_path, **arrays, test_labels=np.array([6]))
    assert capsjax.data.load(name, "train").num_classes == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "labels is not a file in the archive"),
        ({"test_labels": LABELS}, "no item named 'test_images"),
        (
            {"test_images": IMAGES[:, :3], "test_labels": LABELS},
            r"must be of one size, got \[6, 5, 1\] and \[3, 5, 1\]",
        ),
        ({"images": IMAGES / 255}, "images are float64, expected uint8"),
        ({"labels": LABELS + 10**9}, "labels go up to 1000000003; if that is"),
        ({"labels": LABELS / 2}, "labels are float64 of shape"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "the set is empty"),
        ({"labels": LABELS.astype(object)}, "Object arrays cannot be loaded"),
        ({"class_names": np.array(["a", "b"])}, r"label 2 of example 2 \(and 9 more\) is out of"),
        (
            {"class_names": np.array(["a", "b", "a", " "])},
            "class names must differ",
        ),
    ],
)
def test_unfit_arrays_are_named(tmp_path, changes, message):
    arrays = {"images": IMAGES, "labels": LABELS} | changes
    name = save(tmp_path, **{key: x for key, x in arrays.items() if x is not None})
    with pytest.raises(ValueError, match=rf"x\.npz.*{message}"):
        capsjax.data.load(name, "train")


def test_unfit_files_are_named(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(FileNotFoundError, match=r"no file .*x\.npz; expected npz:PATH"):
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


# Archives that are damaged, or lie about what they hold.
TINY, PAIRS = np.zeros((10, 4, 4), np.uint8), np.arange(10) % 2


def _array(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _members(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in members.items():
            archive.writestr(f"{name}.npy", contents)
    return file.getvalue()


GOOD = _members(images=_array(TINY), labels=_array(PAIRS))


def _patched(local, central, value):
    """With these bytes at a place of each local and each central header."""
    data = bytearray(GOOD)
    for signature, place in ((b"PK\3\4", local), (b"PK\1\2", central)):
        at = data.find(signature)
        while at >= 0:
            data[at + place : at + place + len(value)] = value
            at = data.find(signature, at + 1)
    return bytes(data)


def _of_713_tib():
    header = io.BytesIO()
    shape = (713 * 2**30, 32, 32)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    return _members(images=header.getvalue() + b"\0" * 100, labels=_array(PAIRS))


def _with_names(*names):
    return _members(images=_array(TINY), labels=_array(PAIRS), class_names=_array(np.array(names)))


ARCHIVES = {
    "truncated": (GOOD[: len(GOOD) // 2], "not an .npz archive"),
    "encrypted": (_patched(6, 8, b"\1"), "encrypted"),
    "unknown compression": (_patched(8, 10, b"\x4d\0"), "compression"),
    "no arrays": (_members(images=b"text", labels=b"text"), "images are .S4, expected uint8"),
    "empty": (_members(), "images is not a file in the archive"),
    "713 TiB": (_of_713_tib(), "Unable to allocate"),
    "double names": (_with_names("a", "a"), "class names must differ"),
    "empty name": (_with_names("a", ""), "class names must differ and not be empty"),
    "no names": (_with_names(), "strings|out of range|no class names"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives(tmp_path, case):
    contents, message = ARCHIVES[case]
    (tmp_path / "x.npz").write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        capsjax.data.load(f"npz:{tmp_path / 'x.npz'}", "train")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not an image file"):
        capsjax.data.read_image(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="no file"):
        capsjax.data.load(f"npz:{tmp_path / 'pipe'}", "train")
