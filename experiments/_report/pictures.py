"""Arrays as pictures that are embedded in the page."""

import base64
import io
from itertools import chain

import numpy as np
from jaxtyping import Num
from PIL import Image

LARGEST = 128  # pixels, the longer side of a picture
IN_STRIPS = 64  # the same in rows and sheets of them
PHOTOGRAPH = 48


def data_uri(contents: bytes, kind: str) -> str:
    """A file as an address, `kind` being its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(contents).decode()}"


def picture(image: Num[np.ndarray, "h w c"]) -> str:
    """An image, uint8 or floats in [0, 1], as a data URI.

    One channel is shown grey, three in colour; other numbers of channels side by side in grey.
    """
    made = as_image(image)
    made.thumbnail((LARGEST, LARGEST))
    return _encode(made)


def strip(images: Num[np.ndarray, "k h w c"], gap: int = 2) -> str:
    """Images of one kind in a row, the page showing through between them, as one data URI."""
    pictures = [as_image(image) for image in images]
    for picture in pictures:
        picture.thumbnail((IN_STRIPS, IN_STRIPS))
    width, height = pictures[0].size
    row = Image.new(
        "LA" if pictures[0].mode == "L" else "RGBA", ((width + gap) * len(images), height)
    )
    for i, picture in enumerate(pictures):
        row.paste(picture.convert(row.mode), (i * (width + gap), 0))
    return _encode(row.crop((0, 0, row.width - gap, height)))


def sheet(images: Num[np.ndarray, "rows columns h w c"]) -> str:
    """Images of one kind in rows and columns without gaps, as one data URI."""
    rows, columns = images.shape[:2]
    pictures = [[as_image(image) for image in row] for row in images]
    for picture in chain.from_iterable(pictures):
        picture.thumbnail((IN_STRIPS, IN_STRIPS))
    width, height = pictures[0][0].size
    page = Image.new(pictures[0][0].mode, (width * columns, height * rows))
    for row, column in np.ndindex(rows, columns):
        page.paste(pictures[row][column], (column * width, row * height))
    return _encode(page)


def as_image(image: Num[np.ndarray, "h w c"]) -> Image.Image:
    """An image, uint8 or floats in [0, 1]; see `picture` for other than one or three channels."""
    if image.dtype != np.uint8:
        image = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    if image.shape[-1] != 3:
        image = np.concatenate(np.moveaxis(image, -1, 0), axis=1)
    return Image.fromarray(image)


def _encode(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    # Losing nothing takes little room for digits, and much for photographs.
    if picture.height < PHOTOGRAPH:
        picture.save(buffer, "PNG", optimize=True)
        return data_uri(buffer.getvalue(), "image/png")
    picture.save(buffer, "WEBP", quality=80)
    return data_uri(buffer.getvalue(), "image/webp")
