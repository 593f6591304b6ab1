"""What the documentation is built with: links, notebooks, formulas, and the site in a browser."""

import doctest
import importlib.util
import inspect
import json
import re
from pathlib import Path

import pytest

from capsjax import functional, routing
from tests.experiments.browser import CHROMIUM, Browser
from tests.processes import ROOT


def module(name: str):
    """A file of docs/ that is a part of its build."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


formulas, notebooks, options = map(module, ("_formulas", "_notebooks", "_options"))


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page, flags=re.S), re.M)
    return {re.sub(r"[^\w -]", "", text.lower()).strip().replace(" ", "-") for text in headings}


def test_links():
    """Between pages, to their headings and to files of the repository."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
    broken = []
    for page in (page for page in pages if "_build" not in page.parts):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            known = target.suffix != ".md" or not target.exists() or not anchor
            if not target.exists() or not (known or anchor in anchors(target.read_text())):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


@pytest.mark.parametrize("page", ["routing", pytest.param("analysis", marks=pytest.mark.slow)])
def test_examples(page):
    """They give what the page prints."""
    file = str(ROOT / f"docs/{page}.md")
    failed, tried = doctest.testfile(file, module_relative=False, encoding="utf-8")
    assert tried > 20
    assert failed == 0


def test_notebooks():
    """`python docs/_notebooks.py` writes them."""
    made = notebooks.notebooks()
    assert set(made) == set(ROOT.glob("docs/notebooks/*.ipynb"))
    for file, content in made.items():
        assert file.read_text(encoding="utf-8") == content
        code = [c for c in json.loads(content)["cells"] if c["cell_type"] == "code"]
        assert len(code) > 5
        for cell in code[1:]:
            compile("".join(cell["source"]), file.name, "exec")


def test_the_table_of_options():
    """`python docs/_options.py` writes it."""
    page = options.PAGE.read_text(encoding="utf-8")
    assert "| `training.epochs` | `50` | positive | passes over the training images. |" in page
    assert page == options.page()


def test_docstrings():
    """Formulas and other indented blocks are literal."""
    lines = formulas.docstring(inspect.getdoc(functional.squash).splitlines())
    assert lines[:5] == [
        "::",
        "",
        "  squash(s) = |s|² / (1 + |s|²) · s / |s|",
        "",
        "(Sabour et al. 2017, eq. 1)",
    ]
    lines = formulas.docstring(inspect.getdoc(routing.LinearVotes).splitlines())
    assert "  matrix         A = X = Y = √D" in lines
    assert formulas.docstring(["A |length|, and *args.", "size: D."]) == [
        r"A \|length\|, and \*args.",
        r"size: D\.",
    ]


SITE = ROOT / "docs/_build/html"
PAGES = [page.relative_to(SITE) for page in sorted(SITE.rglob("*.html"))]
AXE = importlib.util.find_spec("axe_core_python")
# The explorer in a frame is a page of its own, tested in tests/experiments/test_explorer.py.
VIOLATIONS = "axe.run(document, { iframes: false }).then((r) => r.violations.map(({ id }) => id))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not PAGES or AXE is None or CHROMIUM is None:
        pytest.skip("needs `make docs`, axe-core-python and Chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_every_page_is_accessible(browser, dark):
    rules = Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8") + ";0"
    violations = {}
    for page in PAGES:
        if page.parts[0] not in ("_modules", "_static", "explorer.html"):
            browser.open((SITE / page).as_uri(), dark=dark)
            browser.run(rules)
            if found := browser.run(VIOLATIONS):
                violations[str(page)] = found
    assert not violations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "title"),
    [("EM routing", "em_routing"), ("folder", "Train on a folder"), ("restore", ".restore")],
)
def test_search(browser, query, title):
    browser.open(f"{(SITE / 'search.html').as_uri()}?q={query.replace(' ', '+')}")
    first = "document.querySelector('#search-results li a')?.innerText"
    shown = browser.run(
        "new Promise((done) => setInterval(() => {"
        f" const text = {first}; if (text) setTimeout(() => done({first}), 500); }}, 50))"
    )
    assert title in shown
