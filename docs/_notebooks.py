"""The tutorials that are notebooks, as files that Colab opens: `python docs/_notebooks.py`.

As a Sphinx extension, links to them from their pages.
"""

import json
import re
from pathlib import Path

from capsjax._version import REPOSITORY

DOCS = Path(__file__).parent
CELL = re.compile(r"^```\{code-cell\} python\n(?:---\n.*?^---\n)?(.*?)^```$", re.S | re.M)


def notebooks() -> dict[Path, str]:
    """Returns the content of every notebook, by its file."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("tutorials/*.md"))}
    return {
        DOCS / "notebooks" / f"{page.stem}.ipynb": _notebook(text)
        for page, text in pages.items()
        if CELL.search(text)
    }


def _notebook(page: str) -> str:
    body = page.split("---\n", 2)[2]
    # Colab knows neither Sphinx's roles nor where relative links lead.
    body = re.sub(r"\n\n\{nb-download\}[^\n]*", "", body)
    body = re.sub(r"\n\n```\{raw\}.*?\n```", "", body, flags=re.S)
    body = re.sub(r"\]\(\.\./(\S+\.md)", rf"]({REPOSITORY}/blob/main/docs/\1", body)
    body = re.sub(r"\]\((\w+\.md)", rf"]({REPOSITORY}/blob/main/docs/tutorials/\1", body)
    install = (
        "import sys\n\n"
        'if "google.colab" in sys.modules:\n'
        f"    !git clone --quiet --depth=1 {REPOSITORY} capsjax\n"
        "    %cd capsjax\n"
        "    !pip install --quiet '.[experiments]' equinox\n"
    )
    cells = [_cell("code", install)]
    for place, text in enumerate(CELL.split(body)):
        if text.strip():
            cells.append(_cell(("markdown", "code")[place % 2], text.strip("\n")))
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _cell(kind: str, text: str) -> dict:
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True), **code}


def _link_to_colab(app, docname, source):
    path = REPOSITORY.removeprefix("https://github.com/") + "/blob/main/docs/notebooks"
    address = f"https://colab.research.google.com/github/{path}/{Path(docname).name}.ipynb"
    source[0] = source[0].replace("{nb-download}", f"[Open in Colab]({address}) · {{nb-download}}")


def setup(app):
    app.connect("source-read", _link_to_colab)


if __name__ == "__main__":
    for file, text in notebooks().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
