"""Arrays as pictures that are embedded in the page.

One channel is shown grey, three in colour, other numbers of channels side by side in grey.
"""

import base64
import io

import numpy as np
from jaxtyping import Num
from PIL import Image

LARGEST = 128  # pixels, the longer side of a picture
IN_ROWS = 64  # the same where there are many
PHOTOGRAPH = 48


def data_uri(contents: bytes, kind: str) -> str:
    """Returns a file as an address, `kind` being its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(contents).decode()}"


def picture(image: Num[np.ndarray, "h w c"]) -> str:
    """Returns an image, uint8 or floats in [0, 1], as a data URI."""
    return _encode(_shrunk(image, LARGEST))


def sheet(images: Num[np.ndarray, "rows columns h w c"], gap: int = 0) -> str:
    """Returns images in rows and columns, the page showing through between them, as a data URI."""
    rows, columns = images.shape[:2]
    width, height = _shrunk(images[0, 0], IN_ROWS).size
    size = (columns * (width + gap) - gap, rows * (height + gap) - gap)
    mode = "RGBA" if gap else "RGB" if images.shape[-1] == 3 else "L"
    page = Image.new(mode, size)
    for row, column in np.ndindex(rows, columns):
        made = _shrunk(images[row, column], IN_ROWS).convert(mode)
        page.paste(made, (column * (width + gap), row * (height + gap)))
    return _encode(page)


def as_image(image: Num[np.ndarray, "h w c"]) -> Image.Image:
    """Returns an image, uint8 or floats in [0, 1]."""
    if image.dtype != np.uint8:
        image = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    if image.shape[-1] != 3:
        image = np.concatenate(np.moveaxis(image, -1, 0), axis=1)
    return Image.fromarray(image)


def _shrunk(image: Num[np.ndarray, "h w c"], largest: int) -> Image.Image:
    made = as_image(image)
    made.thumbnail((largest, largest))
    return made


def _encode(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    # Losing nothing takes little room for digits, and much for photographs.
    small = picture.height < PHOTOGRAPH
    options = {"format": "PNG", "optimize": True} if small else {"format": "WEBP", "quality": 80}
    picture.save(buffer, **options)
    return data_uri(buffer.getvalue(), f"image/{options['format'].lower()}")
