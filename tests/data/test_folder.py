from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import capsjax.data
from capsjax.data import tasks
from capsjax.data.folder import Folder
from capsjax.data.images import Fitting, read_fitted
from capsjax.data.sources import default_split
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


def test_a_picture_more_leaves_the_other_images_in_their_splits(tmp_path):
    write_classes(tmp_path / "set", 40)

    def test_images():
        images = capsjax.data.load(f"folder:{tmp_path}/set", "test").images
        return {image.tobytes() for image in images}

    before = test_images()
    write_image(tmp_path / "set/bee/00.png", random_images(1, seed=9)[0])
    assert len(before ^ test_images()) <= 2


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
    with pytest.raises(ValueError, match="no split 'test', only train, val"):
        capsjax.data.load(name, "test")


def test_a_validation_split_of_its_own_is_used(tmp_path):
    """And evaluated on, where there is no test split."""
    train = write_classes(tmp_path / "set/train", 5)
    val = write_classes(tmp_path / "set/val", 2, seed=10)
    name = f"folder:{tmp_path}/set"
    task = tasks.create(name)
    np.testing.assert_array_equal(task.train.images, np.concatenate(list(train.values())))
    images = task.evaluation_set("validation").source.images
    np.testing.assert_array_equal(images, np.concatenate(list(val.values())))
    assert not task.tests
    with pytest.raises(ValueError, match=r"unknown evaluation set of folder:.* 'test': did you"):
        task.evaluation_set("test")
    assert default_split(name) == "val"
    write_classes(tmp_path / "set/test", 1, seed=20)
    assert default_split(name) == "test"
    assert len(tasks.create(name).evaluation_set("test")) == 3


def test_only_a_test_split(tmp_path):
    images = write_classes(tmp_path / "set/test", 2)
    loaded = capsjax.data.load(f"folder:{tmp_path}/set", "test")
    np.testing.assert_array_equal(loaded.images, np.concatenate(list(images.values())))


def test_only_a_training_split(tmp_path):
    write_classes(tmp_path / "set/train", 5)
    name = f"folder:{tmp_path}/set"
    assert len(tasks.create(name, validation_fraction=0.2).evaluation_set("validation")) == 3
    assert default_split(name) is None
    assert not tasks.create("mnist_translated", source=name).tests


def test_one_class_is_not_a_task(tmp_path):
    write_image(tmp_path / "set/ant/0.png", random_images(1)[0])
    write_image(tmp_path / "set/ant/1.png", random_images(1)[0])
    with pytest.raises(ValueError, match=r"has only the class 'ant', expected two .*PATH/CLASS"):
        tasks.create(f"folder:{tmp_path}/set")


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


def test_unfit_folders_are_named(tmp_path):
    root = tmp_path / "set"

    def refused(message, error=ValueError):
        with pytest.raises(error, match=message):
            capsjax.data.load(f"folder:{root}", "train")

    refused(r"name: folder:/.*set does not exist", FileNotFoundError)
    root.mkdir()
    refused("no subfolders; expected one per class")
    write_classes(root, 2)
    (root / "dog").mkdir()
    refused("dog: no images")
    for k in range(2):
        (root / f"dog/{k}.png").write_text("no image")
    refused(r"dog/\d.png: not an image that PIL can read")
    (root / "ant/damaged.png").write_text("no image")
    refused(r"no image of dog can be read:\n.*ant/damaged.png: not an image.*\n.*dog/\d.png: not")
    (root / "ant/damaged.png").unlink()
    for k, image in enumerate(random_images(2, size=(6, 6))):
        write_image(root / f"dog/{k}.png", image)
    refused(r"dog/\d.png: has \[H, W, C\] = \[6, 6, 1\] and .*ant.*--config\.data\.size=32")
    write_classes(root / "train", 2)
    write_image(root / "test/dog/0.png", random_images(1)[0])
    refused(r"dog is not a class of .*train")


@pytest.fixture
def pictures(tmp_path):
    """As they come from a camera, a scanner and the net: four of each of two classes."""
    root = tmp_path / "pictures"
    for name in ("dark", "light"):
        (root / name).mkdir(parents=True)
        level = 40 if name == "dark" else 200
        Image.new("L", (20, 10), level).save(root / name / "grey.png")
        Image.new("RGB", (9, 30), (level,) * 3).save(root / name / "colour.JPG")
        Image.new("I;16", (8, 8), level * 256).save(root / name / "scan.png")
        Image.new("RGBA", (8, 8), (level, level, level, 255)).save(root / name / "alpha.png")
    return root


def prepared(root, *, size=8, channels=1, fit="pad", split="train"):
    task = tasks.create(f"folder:{root}", size=size, channels=channels, fit=fit, max_shift=0)
    return task.evaluation_set(split)


def test_mixed_sizes_and_kinds_are_made_one(pictures):
    for channels in (1, 3):
        for split, count in (("train", 4), ("validation", 2), ("test", 2)):
            rendered = tasks.render(prepared(pictures, channels=channels, split=split))
            assert rendered.images.shape == (count, 8, 8, channels)
            means = rendered.images[:, 3:5, 3:5].mean((1, 2, 3))
            expected = np.where(rendered.labels[:, 0] == 1, 40, 200)
            np.testing.assert_allclose(means, expected, atol=1)


def test_proportions_are_kept(tmp_path):
    """A wide image, white at the left and right, grey in the middle."""
    wide = np.full((10, 20), 100, np.uint8)
    wide[:, :5] = wide[:, 15:] = 255
    for name in ("a", "b"):
        for k in range(2):
            write_image(tmp_path / "set" / name / f"{k}.png", wide[..., None])
    name = f"folder:{tmp_path / 'set'}"
    padded = capsjax.data.load(name, "train", fitting=Fitting(10, 10, 1)).images[0, ..., 0]
    assert padded[:2].max() == padded[8:].max() == 0
    assert padded[5, 0] > 200
    cropped = capsjax.data.load(name, "train", fitting=Fitting(10, 10, 1, "crop")).images[0]
    assert set(cropped.ravel()) == {100}


def test_broken_files_are_skipped_and_listed_and_strays_ignored(pictures):
    (pictures / "dark/torn.png").write_bytes((pictures / "dark/grey.png").read_bytes()[:40])
    (pictures / "dark/notes.txt").write_text("no image")
    (pictures / "dark/Thumbs.db").write_bytes(b"no image")
    # By its name it falls into a split with others of its class.
    with pytest.warns(RuntimeWarning, match=r"1 of \d images are skipped:\n  .*torn\.png: not"):
        counts = [len(prepared(pictures, split=s)) for s in ("train", "validation", "test")]
    assert sum(counts) == 8
    found = Folder(pictures).survey()
    assert sum(found.counts["train"].values()) + sum(found.counts["test"].values()) == 8
    assert found.sizes[8, 8, 1] == found.sizes[8, 8, 3] == 2
    assert len(found.broken) == 1
    assert {path.name for path in found.strays} == {"notes.txt", "Thumbs.db"}


def test_orientation_is_obeyed_before_cropping(tmp_path):
    image = np.zeros((8, 16, 1), np.uint8)
    image[:, :8] = 255  # the left half; turned a quarter clockwise, the upper one
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(2):
            Image.fromarray(image[..., 0]).save(tmp_path / name / f"{k}.png", exif=exif)
    pixels = capsjax.data.load(f"folder:{tmp_path}", "train", fitting=Fitting(16, 16, 1)).images[0]
    assert pixels[:7, 4:12].min() == 255
    assert pixels[9:].max() == 0


def test_transparent_pixels_are_drawn_on_white(tmp_path):
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "x.png")
    fitted = read_fitted(tmp_path / "x.png", Fitting(channels=1))
    assert fitted.pixels.shape == (4, 4, 1)
    assert fitted.pixels.min() == 255
    assert fitted.edge == 1.0
    assert list(fitted.steps) == ["drawn on white", "made grey"]


def test_only_image_files_are_made_to_fit(npz):
    with pytest.raises(ValueError, match="only images of a folder:PATH are made to fit"):
        capsjax.data.load(f"npz:{npz}", "train", fitting=Fitting(8, 8, 1))
    assert "size" in tasks.options("folder:x")
    assert "size" not in tasks.options("digits")
