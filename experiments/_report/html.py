"""HTML: elements, pictures, the few shapes that pages are made of, the document around them.

Of pictures one channel is shown grey, three in colour, other numbers side by side in grey.
"""

import base64
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num
from PIL import Image

# A browser that reads this loads nothing from outside and runs no script but those that are named
# by their contents, whatever else is here.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'"
)
LARGEST = 128  # pixels, the longer side of a picture
IN_ROWS = 64  # the same where there are many
PHOTOGRAPH = 48
_WITHOUT_END = ("img", "source")


class Html(str):
    """A string of HTML. Every other string is plain text, which `tag` escapes."""


def tag(name: str, *content: str, **attributes: object) -> Html:
    """Returns an element: tag("td", "7 < 8", class_="right", data_true=7).

    An attribute that is True has no value; None and False leave it out.
    """
    words = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            words += f" {key.rstrip('_').replace('_', '-')}"
            words += "" if value is True else f'="{escape(str(value))}"'
    return Html(f"<{words}>" if name in _WITHOUT_END else f"<{words}>{join(content)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """Joins elements and plain text."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def image(pixels: Any, alt: str) -> Html:
    """Returns a picture [h, w, c]; `alt` says what it shows."""
    return tag("img", src=picture(pixels), alt=alt)


def section(name: str, title: str, text: str, body: str = "") -> Html:
    """Returns a part of the page: `title` and `text` are plain, `body` is HTML."""
    return tag("section", tag("h2", title), tag("p", text), Html(body), id=name)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Returns a table that scrolls; the first cell of each row is its head."""
    head = [tag("th", text, scope="col") if text else tag("td") for text in heads]
    body = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells))
        for name, *cells in rows
    ]
    parts = tag("thead", tag("tr", *head)), tag("tbody", *body)
    return tag("div", tag("table", *parts, class_="results"), class_="scroll", tabindex=0)


def contents(titles: Mapping[str, str]) -> Html:
    """Links to the sections, by name."""
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title in titles.items()]
    return tag("nav", tag("ul", *links), aria_label="Contents")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Writes a count, such as "1 image" or "1,200 images"."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def percent(share: float) -> str:
    """Writes a percentage, such as 98.9 %."""
    return f"{100 * share:.1f} %"


def document(title: str, body: str, scripts: Sequence[str] = (), data: Any = None) -> str:
    """Returns a whole page, with JavaScript files and the `data` that they read as JSON."""
    folder, policy = Path(__file__).parent, POLICY
    sources = [(folder / name).read_text(encoding="utf-8") for name in scripts]
    if sources:
        digests = (hashlib.sha256(source.encode()).digest() for source in sources)
        hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
        policy += f"; script-src {hashes}"
        # In a script nothing is escaped: there must be nothing that could end it.
        text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        body += f'\n<script type="application/json" id="data">{text}</script>'
        body += "".join(f"\n<script>{source}</script>" for source in sources)
    style = (folder / "page.css").read_text(encoding="utf-8")
    page = (folder / "page.html").read_text(encoding="utf-8")
    page = page.format(policy=policy, title=escape(title), style=style, body=body)
    # A file's name need not be text: what cannot be written is shown by its number.
    return page.encode("utf-8", "backslashreplace").decode()


def data_uri(contents: bytes, kind: str) -> str:
    """Returns a file as an address, `kind` being its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(contents).decode()}"


def picture(image: Num[np.ndarray, "h w c"]) -> str:
    """Returns an image, uint8 or floats in [0, 1], as a data URI."""
    return _encode(_shrunk(image, LARGEST))


def sheet(images: Num[np.ndarray, "rows columns h w c"], gap: int) -> str:
    """Returns images in rows and columns, the page showing through between them, as a data URI."""
    rows, columns = images.shape[:2]
    width, height = _shrunk(images[0, 0], IN_ROWS).size
    size = (columns * (width + gap) - gap, rows * (height + gap) - gap)
    page = Image.new("RGBA", size)
    for row, column in np.ndindex(rows, columns):
        made = _shrunk(images[row, column], IN_ROWS).convert("RGBA")
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
