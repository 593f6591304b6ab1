"""Sphinx settings. `make docs` builds with warnings as errors."""

import re
import subprocess
import sys
from pathlib import Path

from flax import nnx
from sphinx.util import inspect

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

project = "capsjax"
extensions = [
    "myst_nb",  # Markdown, and the pages of it that are notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "_formulas",
    "_notebooks",
]
exclude_patterns = ["_build", "notebooks"]
default_role = "code"
add_module_names = False

html_theme = "furo"
html_title = "capsjax"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["accessible.js"]
html_search_scorer = str(DOCS / "_static/scorer.js")
html_copy_source = False
html_show_copyright = False

myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

nb_execution_mode = "auto"  # when the page is new or changed
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

napoleon_use_ivar = True  # else fields of a NamedTuple appear twice
napoleon_attr_annotations = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80


def fields_are_described_by_their_class(app, what, name, obj, skip, options):
    """Drops the fields of a NamedTuple, which are "Alias for field number 0" by themselves."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def readable_signature(app, what, name, obj, options, signature, returns):
    """Arguments of a network or layer as its `__init__` has them; types as the source has them."""
    if what == "class" and issubclass(obj, nnx.Module):
        signature = inspect.stringify_signature(
            inspect.signature(obj.__init__, bound_method=True), unqualified_typehints=True
        )
    return tuple(text and _readable(text) for text in (signature, returns))


def _readable(text):
    text = text.replace("~jaxtyping.", "").replace("jaxlib._jax.Array", "Array")
    # jaxtyping makes two types of one annotation of JAX and NumPy arrays.
    text = re.sub(r"(\w+)\[Array, ('.*?')\] \| \1\[ndarray, \2\]", r"\1[Array | ndarray, \2]", text)
    text = re.sub(r"<function (\w+)>", r"\1", text)
    return re.sub(r"= (\w+Config)\((?:[^()]|\([^()]*\))*\)", r"= \1()", text)


def make_explorer(app):
    """Writes the report of a released network, which a page embeds."""
    page = Path(app.outdir) / "explorer.html"
    if app.builder.format == "html" and not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        script = DOCS.parent / "experiments/report.py"
        network = DOCS.parent / "releases/digits_capsnet.safetensors"
        subprocess.run([sys.executable, script, network, f"--output={page}", "--quiet"], check=True)


def setup(app):
    app.connect("builder-inited", make_explorer)
    app.connect("autodoc-skip-member", fields_are_described_by_their_class)
    app.connect("autodoc-process-signature", readable_signature)
