"""A Sphinx extension: formulas as MathML, which browsers set by themselves, without scripts.

Pages write formulas in LaTeX between dollars. Docstrings have them as plain text, in indented
blocks or in a first line such as "formula   (paper, equation).", and so does the API reference.
"""

import re

FIRST_LINE = re.compile(r"(?P<formula>\S.*\S)   (?P<source>\(.*\))\.")


def docstring(lines: list[str]) -> list[str]:
    """Returns the lines of a docstring as reStructuredText.

    Indented blocks and formulas are literal; | and * stand for themselves.
    """
    converted: list[str] = []
    if lines and (first := FIRST_LINE.fullmatch(lines[0])):
        converted += ["::", "", f"  {first['formula']}", ""]
        lines = [first["source"], *lines[1:]]
    while lines:
        size = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
        if size:
            converted += lines[:size]
        elif lines[0].startswith("  ") and not "".join(converted[-1:]):
            size = next((n for n, line in enumerate(lines) if re.match(r"\S", line)), len(lines))
            converted += ["::", "", *lines[:size]]
        else:
            size = 1
            line = re.sub(r"([|*])", r"\\\1", lines[0])
            # "D." alone would begin a list.
            converted.append(re.sub(r": ([A-Z])\.$", r": \1\\.", line))
        lines = lines[size:]
    return converted


def setup(app):
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    def inline(self, node):
        self.body.append(convert(node.astext(), display="inline"))
        raise SkipNode

    def block(self, node):
        formula = convert(node.astext(), display="block")
        self.body.append(f'<div class="formula">{formula}</div>')
        raise SkipNode

    def process(app, what, name, obj, options, lines):
        lines[:] = docstring(lines)

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    # Before napoleon (500), which reads the sections of the docstring.
    app.connect("autodoc-process-docstring", process, priority=400)
