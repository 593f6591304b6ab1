"""A cache and data directories of the test's own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; and no data directories but those that the test names."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("CAPSJAX_CACHE_DIR", str(directory))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds_default"))
    monkeypatch.delenv("CAPSJAX_DATA_DIR", raising=False)
    return directory
