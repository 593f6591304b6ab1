import numpy as np
import pytest
import tensorflow_datasets as tfds

import capsjax.data
from capsjax.data.lazy_images import LazyImages
from tests.data.small_datasets import CLASSES, png, random_images, tiny_examples, write_tfds


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


def test_reads_a_set_that_tfds_does_not_know(data_dir):
    splits = {"train": tiny_examples(7), "extra": tiny_examples(1, seed=2)}
    write_tfds(data_dir, splits=splits)
    train = capsjax.data.load("tiny", "train", data_dir)
    np.testing.assert_array_equal(train.images, random_images(7))
    assert train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert train.class_names == CLASSES
    extra = capsjax.data.load("tiny", "extra", str(data_dir))
    np.testing.assert_array_equal(extra.images, random_images(1, seed=2))
    with pytest.raises(ValueError, match="no split 'val', only train, extra"):
        capsjax.data.load("tiny", "val", data_dir)


def test_a_set_above_the_budget_stays_in_its_files(data_dir, cache_dir):
    write_tfds(data_dir, splits={"train": tiny_examples(7), "test": tiny_examples(3, seed=1)})
    budget = 7 * 30 / 2**20  # 6×5 pixels
    for _ in range(2):  # the second time with labels from the cache
        train = capsjax.data.load("tiny", "train", data_dir, device_budget_mb=0.99 * budget)
        assert isinstance(train.images, LazyImages)
        assert train.images.shape == (7, 6, 5, 1)
        assert train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
        assert train.class_names == CLASSES
        indices = np.array([[6, 0, 3], [3, 1, 5]])
        np.testing.assert_array_equal(train.images[indices], random_images(7)[indices])
    (entry,) = (cache_dir / "datasets").iterdir()
    assert np.load(entry)["images"].shape == (1, 6, 5, 1)
    whole = capsjax.data.load("tiny", "train", data_dir, device_budget_mb=1.01 * budget)
    np.testing.assert_array_equal(whole.images, random_images(7))


def test_an_odd_image_of_a_large_set_is_found_when_it_is_read(data_dir):
    examples = tiny_examples(3) + tiny_examples(1, size=(7, 5))
    write_tfds(data_dir, splits={"train": examples})
    images = capsjax.data.load("tiny", "train", data_dir, device_budget_mb=0).images
    np.testing.assert_array_equal(images[np.arange(3)], random_images(3))
    with pytest.raises(ValueError, match=r"image 3 has \[H, W, C\] = \[7, 5, 1\] and the first"):
        images[np.array([0, 3])]


def test_search_order(tmp_path, monkeypatch):
    for i, place in enumerate(("a", "b", "tfds_default", "argument")):
        write_tfds(tmp_path / place, splits={"train": tiny_examples(2, seed=i)})

    def directory_read(data_dir=None) -> int:
        images = capsjax.data.load("tiny", "train", data_dir).images
        (place,) = (i for i in range(4) if np.array_equal(images, random_images(2, seed=i)))
        return place

    assert directory_read() == 2
    monkeypatch.setenv("CAPSJAX_DATA_DIR", f"{tmp_path}/nowhere:{tmp_path}/b:{tmp_path}/a")
    assert directory_read() == 1
    assert directory_read(tmp_path / "argument") == 3


def test_newest_version_unless_one_is_asked_for(data_dir):
    for i, version in enumerate(("1.9.0", "1.10.0")):
        write_tfds(data_dir, version=version, splits={"train": tiny_examples(i + 1)})
    assert len(capsjax.data.load("tiny", "train", data_dir).images) == 2
    assert len(capsjax.data.load("tiny:1.9.0", "train", data_dir).images) == 1


def test_configurations(data_dir):
    write_tfds(data_dir, config="one", splits={"train": tiny_examples(1)})
    assert len(capsjax.data.load("tiny", "train", data_dir).images) == 1
    write_tfds(data_dir, config="two", splits={"train": tiny_examples(2)})
    assert len(capsjax.data.load("tiny/two", "train", data_dir).images) == 2
    with pytest.raises(ValueError, match="2 configurations; expected one of tiny/one, tiny/two"):
        capsjax.data.load("tiny", "train", data_dir)


def image(side=None):
    shape = (side, side, 1) if side else (6, 5, 1)
    return tfds.features.Image(shape=shape, encoding_format="png")


def label(names):
    """By their number, or as they are called."""
    given = {"num_classes": names} if isinstance(names, int) else {"names": names}
    return tfds.features.ClassLabel(**given)


def write_with_features(data_dir, features, supervised_keys=None):
    examples = [
        {key: png(image) if key.startswith("i") else 1 for key in features()}
        for image in random_images(3)
    ]
    write_tfds(
        data_dir, features=features, supervised_keys=supervised_keys, splits={"train": examples}
    )


def test_keys_are_found_by_type(data_dir):
    write_with_features(data_dir, lambda: {"number": np.int64, "i_scan": image(), "kind": label(4)})
    dataset = capsjax.data.load("tiny", "train", data_dir)
    np.testing.assert_array_equal(dataset.images, random_images(3))
    assert dataset.class_names == ("0", "1", "2", "3")


def test_supervised_keys_decide_between_several_labels(data_dir):
    def features():
        return {"image": image(), "coarse": label(2), "label": label(3)}

    write_with_features(data_dir / "decided", features, ("image", "label"))
    assert capsjax.data.load("tiny", "train", data_dir / "decided").num_classes == 3
    for name, given in (("open", features), ("none", lambda: {"number": np.int64})):
        write_with_features(data_dir / name, given)
        with pytest.raises(ValueError, match="expected one Image and one ClassLabel feature, got"):
            capsjax.data.load("tiny", "train", data_dir / name)


UNLABELLED = [{"image": png(image), "label": -1} for image in random_images(2)]
ODD = tiny_examples(2) + tiny_examples(1, size=(4, 4))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (UNLABELLED, r"label -1 of example 0 .*expected 0 to 2"),
        (ODD, r"image 2 has \[H, W, C\] = \[4, 4, 1\]"),
    ],
)
def test_unfit_examples(data_dir, examples, message):
    write_tfds(data_dir, splits={"train": examples, "test": tiny_examples(1)})
    with pytest.raises(ValueError, match=message):
        capsjax.data.load("tiny", "train", data_dir)


def test_damaged_and_missing_files(data_dir):
    directory = write_tfds(data_dir, splits={"train": tiny_examples(5)})
    (records,) = directory.glob("*train*")

    def refused(message):
        with pytest.raises(ValueError, match=message):
            capsjax.data.load("tiny", "train", data_dir)

    records.write_bytes(records.read_bytes()[:-50])
    refused(r"tiny/1\.0\.0, split 'train': files are missing or damaged")
    records.unlink()
    refused("files are missing or damaged")
    (directory / "features.json").write_text("{")
    refused("files are missing or damaged")
    (directory / "dataset_info.json").write_text("{")
    refused(r"dataset_info\.json is damaged")


def test_real_mnist(real_mnist_dir):
    train = capsjax.data.load("mnist", "train")
    test = capsjax.data.load("mnist", "test")
    assert train.images.shape == (60_000, 28, 28, 1)
    assert test.images.shape == (10_000, 28, 28, 1)
    # The counts and the mean that are published for the original files.
    assert np.bincount(train.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert np.bincount(test.labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert abs(train.images.mean() / 255 - 0.1307) < 1e-4


class CapsjaxTestSet(tfds.core.GeneratorBasedBuilder):
    """A set that TFDS knows and that is prepared nowhere; it happens to need no TensorFlow."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = "."

    def _info(self):
        features = tfds.features.FeaturesDict({"image": image(), "label": label(CLASSES)})
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        return {"train": enumerate(tiny_examples(4))}

    def _generate_examples(self):
        raise NotImplementedError


def test_prepares_into_the_first_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(capsjax.data.tfds, "find_spec", lambda name: True)
    monkeypatch.setenv("CAPSJAX_DATA_DIR", f"{tmp_path}/a:{tmp_path}/b")
    dataset = capsjax.data.load("capsjax_test_set", "train")
    assert (dataset.images == random_images(4)).all()
    assert (tmp_path / "a/capsjax_test_set/1.0.0/dataset_info.json").is_file()


def test_without_tensorflow_says_where_it_looked_and_how_to_prepare(tmp_path, monkeypatch):
    monkeypatch.setattr(capsjax.data.tfds, "find_spec", lambda name: None)
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("CAPSJAX_DATA_DIR", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(FileNotFoundError) as error:
        capsjax.data.load("capsjax_test_set", "train")
    message = str(error.value)
    assert "dataset 'capsjax_test_set' is not prepared in" in message
    for place in ("a", "b", "tfds_default"):
        assert f"  {tmp_path}/{place}\n" in message
    assert "[prepare]'" in message


def test_missing_data_dir_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_dir: no directory .*nowhere of prepared"):
        capsjax.data.load("mnist", "train", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "nearest"), [("mnits", "mnist"), ("cifar", "cifar10"), ("digit", "digits")]
)
def test_unknown_name_gets_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=rf"unknown dataset '{name}'; .*did you mean .*{nearest}"):
        capsjax.data.load(name, "train")


def test_path_without_its_kind(tmp_path):
    with pytest.raises(ValueError, match=f"write 'folder:{tmp_path}' for a directory"):
        capsjax.data.load(str(tmp_path), "train")
