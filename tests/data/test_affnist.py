"""Small files of the layout of the published ones."""

import numpy as np
import pytest
import scipy.io

from capsjax.data import load


def write(file, count, *, seed=0, **changes):
    """As affNIST's: images as columns, labels as a row, other fields beside them."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 40, 40), dtype=np.uint8)
    labels = np.arange(count) % 10
    file.parent.mkdir(parents=True, exist_ok=True)
    fields = {
        "affine": np.zeros((6, count)),
        "image": images.reshape(count, 1600).T,
        "label_one_of_n": np.eye(10)[labels].T,
        "label_int": labels[None].astype(np.uint8),
    }
    scipy.io.savemat(file, {"affNISTdata": fields | changes}, do_compression=True)
    return images, labels


def test_batches_in_the_order_of_their_numbers(tmp_path):
    written = {n: write(tmp_path / f"test_batches/{n}.mat", 3, seed=n) for n in (1, 2, 10)}
    dataset = load(f"affnist:{tmp_path}", "test")
    np.testing.assert_array_equal(
        dataset.images[..., 0], np.concatenate([images for images, _ in written.values()])
    )
    assert dataset.labels.tolist() == [0, 1, 2] * 3
    assert dataset.class_names == tuple("0123456789")


def test_single_files_and_splits(tmp_path):
    write(tmp_path / "test.mat", 4)
    write(tmp_path / "training_and_validation.mat", 6)
    write(tmp_path / "validation_batches/1.mat", 2)
    name = f"affnist:{tmp_path}"
    assert [len(load(name, split).labels) for split in ("train", "validation", "test")] == [6, 2, 4]
    with pytest.raises(ValueError, match=r"^split: .* has no split 'dev', only train, validation"):
        load(name, "dev")


def test_a_changed_file_is_read_again(tmp_path):
    write(tmp_path / "test.mat", 4)
    assert len(load(f"affnist:{tmp_path}", "test").labels) == 4
    write(tmp_path / "test.mat", 5)
    assert len(load(f"affnist:{tmp_path}", "test").labels) == 5


def test_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no affNIST files"):
        load(f"affnist:{tmp_path}", "test")


def test_damaged_and_foreign_files(tmp_path):
    file = tmp_path / "test.mat"
    write(file, 4)
    good = file.read_bytes()
    write(file, 4, image=np.zeros((784, 4), np.uint8))
    other_size = file.read_bytes()
    scipy.io.savemat(file, {"images": np.zeros(3)})
    for contents in (good[:-500], b"nothing of the kind", other_size, file.read_bytes()):
        file.write_bytes(contents)
        with pytest.raises(ValueError, match=r"test\.mat: damaged, or not an affNIST file with"):
            load(f"affnist:{tmp_path}", "test")
