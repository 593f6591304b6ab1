import numpy as np
import pytest
from PIL import Image

from capsjax.data import read_image
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


def test_orientation_noted_by_a_camera_is_applied(tmp_path):
    image = Image.fromarray(random_images(1)[0, ..., 0])
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned a quarter clockwise
    image.save(tmp_path / "x.png", exif=exif)
    turned = np.rot90(np.asarray(image), -1)[..., None]
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), turned)


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
    Image.new("RGBA", (5, 6), (255, 0, 0, 128)).save(path)
    with pytest.raises(ValueError, match=r"x\.png: has transparent pixels"):
        read_image(path)
    Image.new("I;16", (5, 6)).save(path)
    with pytest.raises(ValueError, match=r"x\.png: pixels are of PIL mode 'I;16'"):
        read_image(path)
