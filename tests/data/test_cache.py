import subprocess
import sys

import numpy as np
import pytest

from capsjax.data.cache import cached
from capsjax.data.dataset import Examples
from tests.data.small_datasets import CLASSES, random_images

pytestmark = pytest.mark.filterwarnings("error")

EXAMPLES = Examples(random_images(30), np.arange(30, dtype=np.int32) % 3, CLASSES)


def build() -> Examples:
    return EXAMPLES


def never() -> Examples:
    raise AssertionError("the cache should have held it")


def entry(cache_dir):
    (path,) = (cache_dir / "datasets").iterdir()
    return path


def assert_same(got: Examples, expected: Examples) -> None:
    np.testing.assert_array_equal(got.images, expected.images)
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.images.dtype == np.uint8
    assert got.labels.dtype == np.int32
    assert got.class_names == expected.class_names


@pytest.mark.parametrize("key", ["a set", "a set \udce4"])  # the second of a path not in UTF-8
def test_second_load_comes_from_the_cache(cache_dir, key):
    assert_same(cached(key, "1", build), EXAMPLES)
    assert_same(cached(key, "1", never), EXAMPLES)
    assert entry(cache_dir).name.startswith("a-set-")


def test_changed_source_replaces_its_entry(cache_dir):
    cached("key", "1", build)
    changed = EXAMPLES._replace(labels=EXAMPLES.labels[::-1])
    assert_same(cached("key", "2", lambda: changed), changed)
    assert_same(cached("key", "2", never), changed)
    assert entry(cache_dir)


def flip_a_pixel(content: bytes) -> bytes:
    at = content.index(EXAMPLES.images[10].tobytes())
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_pixel,
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content.replace(b"labels.npy", b"lobels.npy"),
    ],
    ids=["pixel", "half", "empty", "member"],
)
def test_damaged_entry_is_built_again_with_a_warning(cache_dir, damage):
    cached("key", "1", build)
    path = entry(cache_dir)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(RuntimeWarning, match="cannot be read and is built again"):
        assert_same(cached("key", "1", build), EXAMPLES)
    assert_same(cached("key", "1", never), EXAMPLES)


def test_directory_that_cannot_be_written_is_only_warned_about(cache_dir):
    cache_dir.write_text("a file where the directory should be")
    with pytest.warns(RuntimeWarning, match="set CAPSJAX_CACHE_DIR"):
        assert_same(cached("key", "1", build), EXAMPLES)


def test_processes_that_write_and_read_at_once(cache_dir):
    """All replace one entry in turn; a reader must only ever see whole ones."""
    script = """
import warnings
import numpy as np
from capsjax.data.cache import cached
from capsjax.data.dataset import Examples

warnings.simplefilter("error")
for turn in range(40):
    version = str(turn % 3)
    images = np.full((200, 28, 28, 1), turn % 3, np.uint8)
    got = cached("key", version, lambda: Examples(images, np.zeros(200, np.int32), ("a",)))
    assert np.array_equal(got.images, images)
"""
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert entry(cache_dir)
