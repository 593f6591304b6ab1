"""A cache and data directories of the test's own."""

import os
from pathlib import Path

import pytest

# What the caller of pytest has set, for the tests on real data.
REAL_DATA_DIR = os.environ.get("CAPSJAX_DATA_DIR", "")


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; and no data directories but those that the test names."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("CAPSJAX_CACHE_DIR", str(directory))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds_default"))
    monkeypatch.delenv("CAPSJAX_DATA_DIR", raising=False)
    return directory


@pytest.fixture
def real_mnist_dir(monkeypatch: pytest.MonkeyPatch) -> str:
    """CAPSJAX_DATA_DIR as the caller of pytest has set it, where MNIST lies in it."""
    if not any((Path(d) / "mnist").is_dir() for d in REAL_DATA_DIR.split(os.pathsep) if d):
        pytest.skip("CAPSJAX_DATA_DIR names no directory with mnist")
    monkeypatch.setenv("CAPSJAX_DATA_DIR", REAL_DATA_DIR)
    return REAL_DATA_DIR
