"""Archives and image files that are damaged, or lie about what they hold."""

import io
import os
import zipfile

import numpy as np
import pytest

from capsjax.data import load, read_image
from tests.faults.commands import assert_told, run

IMAGES = np.zeros((10, 4, 4), np.uint8)
LABELS = np.arange(10) % 2


def _array(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _members(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in members.items():
            archive.writestr(f"{name}.npy", contents)
    return file.getvalue()


GOOD = _members(images=_array(IMAGES), labels=_array(LABELS))


def _patched(local, central, value):
    """With these bytes at a place of each local and each central header."""
    data = bytearray(GOOD)
    for signature, place in ((b"PK\3\4", local), (b"PK\1\2", central)):
        at = data.find(signature)
        while at >= 0:
            data[at + place : at + place + len(value)] = value
            at = data.find(signature, at + 1)
    return bytes(data)


def _of_713_tib():
    header = io.BytesIO()
    shape = (713 * 2**30, 32, 32)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    return _members(images=header.getvalue() + b"\0" * 100, labels=_array(LABELS))


def _with_names(*names):
    return _members(
        images=_array(IMAGES), labels=_array(LABELS), class_names=_array(np.array(names))
    )


ARCHIVES = {
    "truncated": (GOOD[: len(GOOD) // 2], "not an .npz archive"),
    "encrypted": (_patched(6, 8, b"\1"), "encrypted"),
    "unknown compression": (_patched(8, 10, b"\x4d\0"), "compression"),
    "no arrays": (_members(images=b"text", labels=b"text"), "images are .S4, expected uint8"),
    "empty": (_members(), "images is not a file in the archive"),
    "713 TiB": (_of_713_tib(), "Unable to allocate"),
    "double names": (_with_names("a", "a"), "class names must differ"),
    "empty name": (_with_names("a", ""), "class names must differ and not be empty"),
    "no names": (_with_names(), "strings|out of range|no class names"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives(tmp_path, case):
    contents, message = ARCHIVES[case]
    (tmp_path / "x.npz").write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        load(f"npz:{tmp_path / 'x.npz'}", "train")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not an image file"):
        read_image(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="no file"):
        load(f"npz:{tmp_path / 'pipe'}", "train")


@pytest.mark.slow
def test_scripts_do_not_wait_for_pipes(tmp_path, tiny_run):
    os.mkfifo(tmp_path / "pipe.png")
    done = run("predict.py", f"--checkpoint={tiny_run}", tmp_path / "pipe.png")
    assert done.code == 1
    assert "pipe.png: not an image file but a directory, pipe or device" in done.err
    done = run("data.py", f"npz:{tmp_path / 'pipe.png'}", f"--out={tmp_path / 'sheet.png'}")
    assert_told(done, "no file")
