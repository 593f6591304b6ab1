import hashlib
import os
import sys

import numpy as np
import pytest

import capsjax.data
from tests.data.small_datasets import random_images, tiny_examples, write_image, write_tfds
from tests.processes import printed


def test_user_data_and_digits_need_no_tfds(tmp_path):
    for i, image in enumerate(random_images(4)):
        write_image(tmp_path / "set" / "ab"[i % 2] / f"{i}.png", image)
    np.savez(tmp_path / "x.npz", images=random_images(4), labels=[0, 1, 0, 1])
    names = ["digits", f"folder:{tmp_path}/set", f"npz:{tmp_path}/x.npz"]
    script = f"""
import sys
sys.modules["tensorflow_datasets"] = None
import capsjax.data
for name in {names}:
    print(len(capsjax.data.load(name, "train").images))
try:
    capsjax.data.load("mnits", "train")
except ModuleNotFoundError as error:
    print("[data]" in str(error))
"""
    assert printed(script).split() == ["1438", "2", "2", "True"]


def test_cache_hit_needs_no_tfds(tmp_path, monkeypatch):
    write_tfds(tmp_path, splits={"train": tiny_examples(3)})
    first = capsjax.data.load("tiny", "train", tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    second = capsjax.data.load("tiny", "train", tmp_path)
    np.testing.assert_array_equal(first.images, second.images)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert first[2:] == second[2:]


def test_same_file_touched_is_decoded_anew(tmp_path):
    directory = write_tfds(tmp_path, splits={"train": tiny_examples(3)})
    capsjax.data.load("tiny", "train", tmp_path)
    (records,) = directory.glob("*array_record*")
    content = records.read_bytes()
    records.write_bytes(b"x" * len(content))
    os.utime(records, (1, 1))
    with pytest.raises(ValueError, match="files are missing or damaged"):
        capsjax.data.load("tiny", "train", tmp_path)


@pytest.mark.parametrize(
    ("name", "digest"), [("digits", "c1543c33f7a05bde"), ("blobs", "49e56e1b2f493286")]
)
def test_same_bytes_everywhere(name, digest):
    """Computed once: a change means that accuracies are no longer comparable."""
    test = capsjax.data.load(name, "test")
    found = hashlib.sha256(test.images.tobytes() + test.labels.astype("<i4").tobytes())
    assert found.hexdigest().startswith(digest)
