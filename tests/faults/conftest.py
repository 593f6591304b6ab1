import shutil
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("this user cannot mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)
