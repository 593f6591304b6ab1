"""Reads image files as arrays of 8 bits, as they are or made to fit.

16 bits become 8. Files are rejected if their range is unknown: 16-bit files in which no pixel
reaches 4096 (probably 12 bits or fewer), 32-bit integers and floats.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from capsjax._extras import extra
from capsjax._options import Options, checked, not_negative, one_of


def channels_option() -> Any:
    """Returns the option for the number of channels of images."""
    known = "must be 1 (grey), 3 (colour) or 0 (as the images are)"
    return checked(0, lambda channels: channels in (0, 1, 3), known)


@dataclass(frozen=True)
class Fitting(Options):
    """How a user's images are converted to one size and number of channels.

    Attributes:
      height, width: in pixels; both 0 to leave the size as it is.
      channels: 1 for grey, 3 for colour; 0 to leave it as it is.
      fit: how proportions are kept: "pad" shows the whole image, with black beside it; "crop" fills
        the frame with its middle.
    """

    height: int = not_negative(0)
    width: int = not_negative(0)
    channels: int = channels_option()
    fit: str = one_of("pad", "crop")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.height == 0) != (self.width == 0):
            size = f"{self.height} and {self.width}"
            raise ValueError(f"height and width must both be positive or both be 0, got {size}")


AS_IT_IS = Fitting()


class Fitted(NamedTuple):
    pixels: UInt8[np.ndarray, "h w c"]
    steps: Sequence[str]  # in words, what was done to it
    edge: float  # the median brightness of its outermost pixels before it was padded, in [0, 1]


def read_image(path: str | os.PathLike[str]) -> UInt8[np.ndarray, "h w c"]:
    """Decodes an image file: grey (and black and white) to one channel, colour to three.

    The orientation that a camera stored in the file is applied, and transparent pixels are drawn on
    white. Raises ValueError for a file that is not an image, is damaged, or has pixels of an
    unknown range.
    """
    return read_fitted(path, AS_IT_IS).pixels


def read_fitted(path: str | os.PathLike[str], fitting: Fitting, *, invert: bool = False) -> Fitted:
    """Reads an image like `read_image` and fits it; `invert` inverts it before it is padded."""
    with extra("data"):
        from PIL import Image, ImageOps

    image, steps = _open(path)
    grey = image.mode in ("1", "L", "LA")
    if image.has_transparency_data and image.convert("RGBA").getextrema()[-1] != (255, 255):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        steps.append("drawn on white")
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
        before = "{}×{}".format(*image.size)
        if fitting.fit == "pad":
            inside = ImageOps.contain(image, size).size
            if 0 in inside:
                raise ValueError(f"{path}: {before} is too narrow to be made {size[0]}×{size[1]}")
            image = ImageOps.pad(image, size)
            steps.append("{} scaled to {}×{}".format(before, *inside))
            if inside != size:
                steps.append("padded to {}×{}".format(*size))
        else:
            image = ImageOps.fit(image, size)
            steps.append("{} scaled and cropped to {}×{}".format(before, *size))
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return Fitted(pixels, steps, float(np.median(edge)) / 255)


def is_image_name(path: Path) -> bool:
    """Tells by its name whether a file is an image which PIL reads, and not hidden."""
    with extra("data"):
        from PIL import Image

    hidden = path.name.startswith(".")  # such as the ._ files of a Mac
    return not hidden and path.suffix.lower() in Image.registered_extensions()


def _open(path: str | os.PathLike[str]) -> tuple[Any, list[str]]:
    """Returns the image of 8 bits, turned as the camera noted, and what was done to it."""
    with extra("data"):
        from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            sixteen_bits = ";16" in repr(file.tile)
            file.getexif()
            file.info.pop("exif", None)  # which would be written anew, and may not be writable
            image = ImageOps.exif_transpose(file)
            image.load()
    except FileNotFoundError:
        raise
    except Exception as error:  # PIL raises many types for damaged files
        raise ValueError(f"{path}: not an image that PIL can read ({error})") from error
    if image.mode != "F" and not image.mode.startswith("I"):
        return image, []  # PIL has made 16-bit colours 8 bits
    levels = np.asarray(image)
    if not sixteen_bits or levels.min() < 0 or 0 < levels.max() < 4096:
        raise ValueError(f"{path}: has pixels of an unknown range: convert the file to 8 bits")
    return Image.fromarray((levels >> 8).astype(np.uint8)), ["16 bits made 8"]
