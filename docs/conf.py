"""Sphinx settings. `make docs` builds with warnings as errors."""

import re

project = "capsjax"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build"]
default_role = "code"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

napoleon_use_ivar = True  # else fields of a NamedTuple appear twice
napoleon_attr_annotations = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the shapes stand in the docstrings
autodoc_preserve_defaults = True
add_module_names = False


def as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are plain text: formulas are indented, |s| is a length, and * no emphasis."""
    converted = []
    for previous, line in zip(["", *lines], lines, strict=False):
        if line.startswith("  ") and not previous:
            converted += ["::", ""]
        converted.append(line)
    literal = False
    for index, line in enumerate(converted):
        if line == "::":
            literal = True
        elif literal and re.match(r"\S", line):
            literal = False
        if not literal:
            converted[index] = re.sub(r"([|*])", r"\\\1", line)
    lines[:] = converted


def setup(app):
    # Before napoleon (500), which reads the sections of the docstring.
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)
