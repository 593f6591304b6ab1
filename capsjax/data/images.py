"""Image files to arrays of 8 bits, as they are or made to fit: the one place where that is done.

Grey pixels of more than 8 bits are scaled by what the file says and the values show:

  - 16-bit integers are 0 to 65535, or to the MaxSampleValue of a TIFF. If it says none and no pixel
    reaches 4096, the file probably holds fewer bits, and is refused.
  - 32-bit integers are 0 to 255 if no pixel exceeds that, else 0 to 65535, as above.
  - Floats are in [0, 1] if no pixel exceeds 1, else 0 to 255.

Pixels outside these ranges are refused, with the name of the file.
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

_MAX_SAMPLE_VALUE = 281  # a tag of TIFF


def channels_option() -> Any:
    """Returns the option of what images' colours are made."""
    known = "must be 1 (grey), 3 (colour) or 0 (as the images are)"
    return checked(0, lambda channels: channels in (0, 1, 3), known)


@dataclass(frozen=True)
class Fitting(Options):
    """How a user's images are converted to one size and number of channels.

    Attributes:
      height, width: in pixels; 0 to leave the size as it is.
      channels: 1 for grey, 3 for colour; 0 to leave it as it is.
      fit: how proportions are kept: "pad" shows the whole image, with black beside it; "crop" fills
        the frame with its middle.
    """

    height: int = not_negative(0)
    width: int = not_negative(0)
    channels: int = channels_option()
    fit: str = one_of("pad", "crop")


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

    The orientation that a camera stored in the file is applied, and transparent pixels are drawn on
    white. More than 8 bits become 8, by the rule of this module.

    Raises:
      ValueError: the file is not an image, is damaged, or has pixels of an unknown range.
    """
    return read_fitted(path, AS_IT_IS).pixels


def read_fitted(path: str | os.PathLike[str], fitting: Fitting, *, invert: bool = False) -> Fitted:
    """Returns `read_image`, made to fit.

    Args:
      path: of the file.
      fitting: size and channels of the result.
      invert: whether to turn it into its negative, before it is padded.
    """
    with extra("data"):
        from PIL import Image, ImageOps

    image, steps = _open(path)
    if image.has_transparency_data and image.convert("RGBA").getextrema()[-1] != (255, 255):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        steps.append("drawn on white")
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
        before, after = "{}×{}".format(*image.size), "{}×{}".format(*size)
        if fitting.fit == "pad":
            inside = ImageOps.contain(image, size)
            image = ImageOps.pad(image, size)
            steps.append("{} scaled to {}×{}".format(before, *inside.size))
            if inside.size != size:
                steps.append(f"padded to {after}")
        else:
            image = ImageOps.fit(image, size)
            steps.append(f"{before} scaled and cropped to {after}")
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    return Fitted(pixels, steps, float(np.median(edge)) / 255)


def is_image_name(path: Path) -> bool:
    """Tells whether a file's ending is that of an image which PIL reads."""
    with extra("data"):
        from PIL import Image

    return path.suffix.lower() in Image.registered_extensions()


def _open(path: str | os.PathLike[str]) -> tuple[Any, list[str]]:
    """Returns the image of 8 bits, turned as the camera noted, and what was done to it."""
    with extra("data"):
        from PIL import Image, ImageOps

    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise ValueError(f"{os.fspath(path)}: not an image file but a directory, pipe or device")
    try:
        with Image.open(path) as file:
            sixteen_bits = ";16" in repr(file.tile)
            stated = getattr(file, "tag_v2", {}).get(_MAX_SAMPLE_VALUE)
            image = ImageOps.exif_transpose(file)
            image.load()
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{path}: not an image that PIL can read ({error}); repair or remove the file"
        ) from error
    if image.mode == "F" or image.mode.startswith("I"):
        return _as_8_bits(image, sixteen_bits, stated[0] if stated else None, path)
    # PIL converts 16-bit colours to 8 bits.
    if sixteen_bits and 0 < np.asarray(image)[..., :3].max() < 16:
        raise _unknown_range(path, "4095 at most")
    return image, []


def _as_8_bits(
    image: Any, sixteen_bits: bool, stated: int | None, path: str | os.PathLike[str]
) -> tuple[Any, list[str]]:
    """Converts a grey image of more than 8 bits, or of floats, to 8 bits; see the module."""
    with extra("data"):
        from PIL import Image

    levels = np.asarray(image)
    low, high = levels.min(), levels.max()
    if image.mode == "F":
        full = 1 if high <= 1 else 255
        known = low >= 0 and high <= full
    elif stated:
        full, known = stated, low >= 0 and high <= stated
    else:
        full = 255 if high <= 255 and not sixteen_bits else 65535
        known = low >= 0 and high <= full and (full == 255 or high == 0 or high >= 4096)
    if not known:
        raise _unknown_range(path, f"{low} to {high}")
    if full == 65535:
        return Image.fromarray((levels >> 8).astype(np.uint8)), ["16 bits made 8"]
    scaled = np.round(levels * (255 / full)).astype(np.uint8)
    return Image.fromarray(scaled), [f"0 to {full} made 0 to 255"]


def _unknown_range(path: str | os.PathLike[str], pixels: str) -> ValueError:
    return ValueError(
        f"{os.fspath(path)}: has pixels of an unknown range ({pixels}); expected 8 bits, all of 16 "
        "bits, or floats from 0 to 1: convert the file to 8 bits"
    )
