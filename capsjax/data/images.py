"""Image files to arrays."""

import os

import numpy as np
from jaxtyping import UInt8

from capsjax._extras import extra


def read_image(path: str | os.PathLike[str]) -> UInt8[np.ndarray, "h w c"]:
    """Decodes an image file: grey (and black and white) to one channel, colour to three.

    The orientation that a camera stored in the file is applied. An alpha channel is accepted if
    every pixel is opaque.

    Raises:
      FileNotFoundError: no such file.
      ValueError: the file is not an image, is damaged, has more than 8 bits per channel or shows
        transparent pixels.
    """
    with extra("data"):
        from PIL import Image, ImageOps

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
    if image.has_transparency_data:
        image = image.convert("RGBA" if image.mode not in ("LA", "La") else "LA")
        if image.getextrema()[-1] != (255, 255):
            raise ValueError(
                f"{path}: has transparent pixels; expected an opaque image: "
                "draw it on a background first"
            )
    if image.mode in ("1", "L", "LA"):
        grey = np.asarray(image.convert("L"))
        return grey[..., None]
    if image.mode in ("P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"):
        return np.asarray(image.convert("RGB"))
    raise ValueError(
        f"{path}: pixels are of PIL mode {image.mode!r}, expected 8 bits per channel, grey or "
        "colour; convert the image first"
    )
