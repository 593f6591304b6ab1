import pytest
import tensorflow_datasets as tfds

import capsjax.data
from capsjax.data import tfds_download
from tests.data.small_datasets import CLASSES, random_images, tiny_examples, write_tfds


class CapsjaxTestSet(tfds.core.GeneratorBasedBuilder):
    """A set that TFDS knows and that is prepared nowhere; it happens to need no TensorFlow."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = "."

    def _info(self):
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(6, 5, 1), encoding_format="png"),
                "label": tfds.features.ClassLabel(names=CLASSES),
            }
        )
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        return {"train": enumerate(tiny_examples(4))}

    def _generate_examples(self):
        raise NotImplementedError


def without_tensorflow(monkeypatch):
    installed = tfds_download._installed
    monkeypatch.setattr(
        tfds_download, "_installed", lambda name: name != "tensorflow" and installed(name)
    )


def test_prepares_into_the_first_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_download, "_installed", lambda name: True)
    monkeypatch.setenv("CAPSJAX_DATA_DIR", f"{tmp_path}/a:{tmp_path}/b")
    dataset = capsjax.data.load("capsjax_test_set", "train")
    assert (dataset.images == random_images(4)).all()
    assert (tmp_path / "a/capsjax_test_set/1.0.0/dataset_info.json").is_file()


def test_without_tensorflow_says_where_it_looked_and_how_to_prepare(tmp_path, monkeypatch):
    without_tensorflow(monkeypatch)
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("CAPSJAX_DATA_DIR", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(FileNotFoundError) as error:
        capsjax.data.load("capsjax_test_set", "train")
    message = str(error.value)
    assert "dataset 'capsjax_test_set' is not prepared in" in message
    assert f"  {tmp_path}/a\n" in message
    assert f"  {tmp_path}/b (no such directory)\n" in message
    assert f"  {tmp_path}/tfds_default (no such directory)\n" in message
    assert "[prepare]'" in message


def test_missing_data_dir_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_dir: no directory .*nowhere; expected one"):
        capsjax.data.load("mnist", "train", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "nearest"), [("mnits", "mnist"), ("cifar", "cifar10"), ("digit", "digits")]
)
def test_unknown_name_gets_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=rf"unknown dataset '{name}'; .*did you mean .*{nearest}"):
        capsjax.data.load(name, "train")


def test_prepared_sets_are_among_the_nearest(tmp_path):
    write_tfds(tmp_path, splits={"train": tiny_examples(1)})
    with pytest.raises(ValueError, match=r"unknown dataset 'tinny'; .*did you mean 'tiny'"):
        capsjax.data.load("tinny", "train", tmp_path)


@pytest.mark.parametrize("name", ["", "../mnist", "a b", "http://x"])
def test_impossible_names(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # nothing of that name lies there
    with pytest.raises(ValueError, match=f"unknown dataset '{name}'; expected 'digits', the name"):
        capsjax.data.load(name, "train")


def test_path_without_its_kind(tmp_path):
    with pytest.raises(ValueError, match=f"for a directory of images write 'folder:{tmp_path}'"):
        capsjax.data.load(str(tmp_path), "train")
    (tmp_path / "x.npz").touch()
    with pytest.raises(ValueError, match=rf"for an \.npz file write 'npz:{tmp_path}/x\.npz'"):
        capsjax.data.load(f"{tmp_path}/x.npz", "train")
