from pathlib import Path

import numpy as np
import pytest

import capsjax.data
from tests.data.small_datasets import CLASSES, random_images, write_image


def write_classes(root: Path, per_class: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    written = {}
    for i, name in enumerate(CLASSES):
        written[name] = random_images(per_class, seed=seed + i)
        for k, image in enumerate(written[name]):
            write_image(root / name / f"{k}.png", image)
    return written


def test_fixed_stratified_split(tmp_path):
    written = write_classes(tmp_path / "set", 10)
    (tmp_path / "set/readme.txt").write_text("files beside the class folders are left alone")
    (tmp_path / "set/bee/.hidden").write_text("and hidden ones")
    name = f"folder:{tmp_path}/set"
    train, test = (capsjax.data.load(name, split) for split in ("train", "test"))
    assert train.class_names == CLASSES
    assert np.bincount(train.labels).tolist() == [8, 8, 8]
    assert np.bincount(test.labels).tolist() == [2, 2, 2]
    for label, images in enumerate(written.values()):
        loaded = [d.images[d.labels == label] for d in (train, test)]
        got = {image.tobytes() for image in np.concatenate(loaded)}
        assert got == {image.tobytes() for image in images}


def test_splits_of_its_own(tmp_path):
    train = write_classes(tmp_path / "set/train", 3)
    val = write_classes(tmp_path / "set/val", 2, seed=10)
    name = f"folder:{tmp_path}/set"
    np.testing.assert_array_equal(
        capsjax.data.load(name, "train").images, np.concatenate(list(train.values()))
    )
    loaded = capsjax.data.load(name, "val")
    np.testing.assert_array_equal(loaded.images, np.concatenate(list(val.values())))
    assert loaded.labels.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="no split 'test'; expected one of train, val"):
        capsjax.data.load(name, "test")


def test_new_and_changed_files_are_seen(tmp_path):
    write_classes(tmp_path / "set/train", 2)
    name = f"folder:{tmp_path}/set"
    assert len(capsjax.data.load(name, "train").images) == 6
    extra = random_images(1, seed=9)[0]
    write_image(tmp_path / "set/train/ant/0.png", extra)
    write_image(tmp_path / "set/train/ant/9.png", extra)
    images = capsjax.data.load(name, "train").images
    assert len(images) == 7
    np.testing.assert_array_equal(images[[0, 2]], [extra, extra])


def test_colour_images(tmp_path):
    for i, image in enumerate(random_images(4, channels=3)):
        write_image(tmp_path / "set" / CLASSES[i % 2] / f"{i}.png", image)
    assert capsjax.data.load(f"folder:{tmp_path}/set", "train").images.shape == (2, 6, 5, 3)


def test_unfit_folders_are_named(tmp_path):
    root = tmp_path / "set"
    name = f"folder:{root}"

    def load():
        return capsjax.data.load(name, "train")

    with pytest.raises(FileNotFoundError, match=r"no directory .*set; expected folder:PATH"):
        load()
    with pytest.raises(ValueError, match="'folder:' has no path"):
        capsjax.data.load("folder:", "train")
    root.mkdir()
    with pytest.raises(ValueError, match="no subfolders; expected one per class"):
        load()
    write_classes(root, 2)
    (root / "dog").mkdir()
    with pytest.raises(ValueError, match="dog: class folder without images"):
        load()
    (root / "dog/inside").mkdir()
    with pytest.raises(ValueError, match="dog: has the folder 'inside' inside"):
        load()
    (root / "dog/inside").rmdir()
    for k in range(2):
        (root / f"dog/{k}.png").write_text("no image")
    with pytest.raises(ValueError, match=r"dog/\d.png: not an image that PIL can read"):
        load()
    for k, image in enumerate(random_images(2, size=(6, 6))):
        write_image(root / f"dog/{k}.png", image)
    with pytest.raises(ValueError, match=r"dog/\d.png: has \[H, W, C\] = \[6, 6, 1\] and .*ant"):
        load()


def test_class_that_train_does_not_have(tmp_path):
    write_classes(tmp_path / "set/train", 2)
    write_image(tmp_path / "set/test/dog/0.png", random_images(1)[0])
    with pytest.raises(ValueError, match=r"'dog' is no class of .*train, expected one of ant"):
        capsjax.data.load(f"folder:{tmp_path}/set", "train")


def test_too_few_images_for_a_test_split(tmp_path):
    write_classes(tmp_path / "set", 1)
    with pytest.raises(ValueError, match="no images in it; give each class two or more"):
        capsjax.data.load(f"folder:{tmp_path}/set", "test")
