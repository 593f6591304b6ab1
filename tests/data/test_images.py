import numpy as np
import pytest
from PIL import Image

from capsjax.data import read_image
from capsjax.data.images import AS_IT_IS, Fitting, read_fitted
from tests.data.small_datasets import random_images, write_image


@pytest.mark.parametrize("channels", [1, 3])
def test_png_pixels_are_read_exactly(tmp_path, channels):
    image = random_images(1, channels=channels)[0]
    write_image(tmp_path / "x.png", image)
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), image)


@pytest.mark.parametrize(
    ("mode", "channels"),
    [("1", 1), ("L", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3), ("P", 3), ("CMYK", 3)],
)
def test_modes(tmp_path, mode, channels):
    path = tmp_path / "x.tiff"
    Image.new("RGB", (5, 6), "white").convert(mode).save(path)
    image = read_image(path)
    assert image.shape == (6, 5, channels)
    assert image.dtype == np.uint8
    assert np.all(image == 255)


def test_grey_stays_grey_where_it_is_transparent(tmp_path):
    Image.new("LA", (5, 6), (0, 128)).save(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png").tolist() == [[[127]] * 5] * 6


def test_unfit_files_are_named(tmp_path):
    path = tmp_path / "x.png"
    with pytest.raises(FileNotFoundError, match=r"x\.png"):
        read_image(path)
    path.write_text("no image")
    with pytest.raises(ValueError, match=r"x\.png: not an image that PIL can read"):
        read_image(path)
    write_image(path, random_images(1, size=(50, 50))[0])
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"x\.png: not an image that PIL can read"):
        read_image(path)


def test_exif_that_cannot_be_written_anew(tmp_path):
    """Orientation 6, and a width that is text, which PIL reads but does not write."""
    exif = Image.Exif()
    exif[0x0112], exif[0x0100] = 6, 5
    tagged = exif.tobytes().replace(b"\x01\x00\x00\x04", b"\x01\x00\x00\x02")
    image = random_images(1, size=(5, 7))[0]
    Image.fromarray(image[..., 0]).save(tmp_path / "x.png", exif=tagged)
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), np.rot90(image, -1))


def test_a_strip_that_would_vanish_is_refused(tmp_path):
    write_image(tmp_path / "x.png", random_images(1, size=(1, 300))[0])
    with pytest.raises(ValueError, match=r"x\.png: 300×1 is too narrow to be made 12×12"):
        read_fitted(tmp_path / "x.png", Fitting(12, 12))
    with pytest.raises(ValueError, match="must both be positive or both be 0, got 0 and 12"):
        Fitting(width=12)


RAMP = np.linspace(0, 1, 20).reshape(4, 5)


def test_16_bits_become_8(tmp_path):
    Image.fromarray((RAMP * 65535).astype(np.uint16)).save(tmp_path / "x.tif")
    image, steps, _ = read_fitted(tmp_path / "x.tif", AS_IT_IS)
    np.testing.assert_allclose(image[..., 0], 255 * RAMP, atol=1)
    assert steps == ["16 bits made 8"]


@pytest.mark.parametrize(
    ("dtype", "full"), [(np.float32, 1), (np.int32, 65535), (np.uint16, 4095), (np.uint16, 255)]
)
def test_pixels_of_an_unknown_range_are_refused(tmp_path, dtype, full):
    Image.fromarray((RAMP * full).astype(dtype)).save(tmp_path / "x.tif")
    with pytest.raises(ValueError, match=r"x\.tif: has pixels of an unknown range: convert"):
        read_image(tmp_path / "x.tif")
