"""Image files to arrays: as they are, or made to fit."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from capsjax._extras import extra

FITS = ("pad", "crop")


class Fitting(NamedTuple):
    """How a user's images are converted to one size and number of channels.

    Attributes:
      height, width: in pixels; 0 to leave the size as it is.
      channels: 1 for grey, 3 for colour; 0 to leave it as it is.
      fit: how proportions are kept: "pad" shows the whole image, with black beside it; "crop" fills
        the frame with its middle.
    """

    height: int = 0
    width: int = 0
    channels: int = 0
    fit: str = "pad"

    def check(self) -> "Fitting":
        """Itself; raises ValueError for what cannot be."""
        if min(self.height, self.width) < 0 or (self.height == 0) != (self.width == 0):
            raise ValueError(f"size must be ≥ 0 (0: as the images are), got {self.height}")
        if self.channels not in (0, 1, 3):
            raise ValueError(
                f"channels must be 1 (grey), 3 (colour) or 0 (as the images are), got "
                f"{self.channels}"
            )
        if self.fit not in FITS:
            raise ValueError(f"fit must be {' or '.join(FITS)}, got {self.fit!r}")
        return self


AS_IT_IS = Fitting()


class Fitted(NamedTuple):
    """An image that was made to fit.

    Attributes:
      pixels: uint8 [h, w, c].
      steps: in words, what was done to it.
      edge: the median brightness of its outermost pixels before it was padded, in [0, 1].
    """

    pixels: UInt8[np.ndarray, "h w c"]
    steps: Sequence[str]
    edge: float


def read_image(path: str | os.PathLike[str]) -> UInt8[np.ndarray, "h w c"]:
    """Decodes an image file: grey (and black and white) to one channel, colour to three.

    The orientation that a camera stored in the file is applied. An alpha channel is accepted if
    every pixel is opaque.

    Raises:
      FileNotFoundError: no such file.
      ValueError: the file is not an image, is damaged, has more than 8 bits per channel or shows
        transparent pixels.
    """
    image = _open(path)
    if _is_transparent(image):
        raise ValueError(
            f"{path}: has transparent pixels; expected an opaque image: "
            "draw it on a background first"
        )
    if image.mode in ("1", "L", "LA"):
        return np.asarray(image.convert("L"))[..., None]
    if image.mode in ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"):
        return np.asarray(image.convert("RGB"))
    raise ValueError(
        f"{path}: pixels are of PIL mode {image.mode!r}, expected 8 bits per channel, grey or "
        "colour; convert the image first"
    )


def read_fitted(path: str | os.PathLike[str], fitting: Fitting, *, invert: bool = False) -> Fitted:
    """An image file, made to fit.

    Transparent pixels are drawn on white, and 16 bits per channel become 8.

    Args:
      path: of the file.
      fitting: what to make of it.
      invert: whether to turn it into its negative, before it is padded.

    Raises:
      FileNotFoundError: no such file.
      ValueError: the file is not an image, or is damaged.
    """
    with extra("data"):
        from PIL import Image, ImageOps

    image, steps = _open(path), []
    if _is_transparent(image):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        steps.append("drawn on white")
    if image.mode.startswith("I"):
        levels = np.asarray(image, np.int64)
        if levels.min() < 0 or levels.max() >= 2**16:
            raise ValueError(f"{path}: pixels go from {levels.min()} to {levels.max()}; convert it")
        image = Image.fromarray((levels >> 8).astype(np.uint8))
        steps.append("16 bits made 8")
    grey = image.mode in ("1", "L", "LA")
    mode = {0: "L" if grey else "RGB", 1: "L", 3: "RGB"}[fitting.channels]
    if (mode == "L") != grey:
        steps.append("made grey" if mode == "L" else "made RGB")
    image = image.convert(mode)
    if invert:
        image = ImageOps.invert(image)
        steps.append("inverted")
    light = np.asarray(image.convert("L"))
    edge = np.concatenate([light[0], light[-1], light[:, 0], light[:, -1]])
    size = (fitting.width, fitting.height)
    if fitting.height and image.size != size:
        before = f"{image.width}×{image.height}"
        if fitting.fit == "pad":
            inside = ImageOps.contain(image, size)
            image = ImageOps.pad(image, size)
            steps.append(f"{before} scaled to {inside.width}×{inside.height}")
            if inside.size != size:
                steps.append(f"padded to {fitting.width}×{fitting.height}")
        else:
            image = ImageOps.fit(image, size)
            steps.append(f"{before} scaled and cropped to {fitting.width}×{fitting.height}")
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return Fitted(pixels, steps, float(np.median(edge)) / 255)


def is_image_name(path: Path) -> bool:
    """Whether a file's ending is that of an image which PIL reads."""
    with extra("data"):
        from PIL import Image

    return path.suffix.lower() in Image.registered_extensions()


def _open(path: str | os.PathLike[str]) -> Any:
    """The decoded image of PIL, turned as the camera noted."""
    with extra("data"):
        from PIL import Image, ImageOps

    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise ValueError(f"{os.fspath(path)}: not an image file but a directory, pipe or device")
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            image.load()
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{path}: not an image that PIL can read ({error}); repair or remove the file"
        ) from error
    return image


def _is_transparent(image: Any) -> bool:
    if not image.has_transparency_data:
        return False
    return image.convert("RGBA").getextrema()[-1] != (255, 255)
