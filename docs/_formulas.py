"""A Sphinx extension: formulas as MathML, which browsers set by themselves, without scripts.

Pages write formulas in LaTeX between dollars. Docstrings have them as plain text, so that they can
be read in the source too: an indented block with a sum or an arrow in it, or a first line such as
"formula   (paper, equation)." Here they become LaTeX.
"""

import re

SIGNS = {
    "←": r"\leftarrow ", "−": "-", "·": r"\,", "½": r"\tfrac{1}{2}", "≠": r"\ne ",
    "<": r"\langle ", ">": r"\rangle ", "Σ": r"\sum ", "σ": r"\sigma ", "μ": r"\mu ",
    "η": r"\eta ", "λ": r"\lambda ", "β": r"\beta ", "π": r"\pi ",
    "²": "^{2}", "⁺": "^{+}", "⁻": "^{-}", "ĉ": r"\hat{c}", "s̃": r"\tilde{s}",
}  # fmt: skip
WORD = re.compile(r"(?<![A-Za-z_])([A-Za-z]{2,}_[a-z]{3,}|[A-Za-z]{3,})")
FIRST_LINE = re.compile(r"(?P<formula>\S.*\S)   \((?P<source>.*)\)\.")
LINE = re.compile(
    r"\s*(?:(?P<label>\w:)\s+)?(?:(?P<left>[^=←]*?)\s*(?P<sign>[=←])\s*)?"
    r"(?P<right>\S.*?)(?:\s{3,}(?P<note>.*))?"
)


def is_formula(line: str) -> bool:
    """Tells whether an indented line is a formula: code and tables have no sums or arrows."""
    return bool(re.search("[Σ←]", line))


def latex(text: str) -> str:
    """Returns LaTeX of a formula in plain text, such as "p_j = squash(Σ_i c_ij v_ij)"."""
    words: list[str] = []

    def keep(match: re.Match) -> str:
        words.append(match[1])
        return "\N{REPLACEMENT CHARACTER}"

    text = WORD.sub(keep, text)
    text = re.sub(r"_(?!\{)([\w'·]+(?:,\w+)?)", r"_{\1}", text)
    text = re.sub(r"(_\{[^}]*)·", r"\1\\cdot ", text)
    text = re.sub(r"σ²(_\{\w+\})", r"σ\1^{2}", text)
    for sign, command in SIGNS.items():
        text = text.replace(sign, command)
    text = re.sub(r"\|([^|]+)\|", r"\\lvert \1\\rvert ", text)
    for word in words:
        command = "text" if "_" in word else "operatorname"
        text = text.replace("\N{REPLACEMENT CHARACTER}", _in(command, word), 1)
    return text


def aligned(lines: list[str]) -> str:
    """Returns LaTeX of several formulas, aligned at their signs."""
    rows = []
    for line in lines:
        part = LINE.fullmatch(line.rstrip()).groupdict()
        label = _in("text", part["label"])
        left, right = latex(part["left"] or ""), latex(part["right"])
        sign = SIGNS.get(part["sign"], part["sign"] or "")
        note = _in("text", part["note"])
        rows.append(rf"{label} & {left} & {sign} & {right} \quad {note}")
    return r"\begin{array}{lrcl} " + r" \\ ".join(rows) + r" \end{array}"


def _in(command: str, text: str | None) -> str:
    return f"\\{command}{{{text}}}" if text else ""


def docstring(lines: list[str]) -> list[str]:
    """Returns the lines of a docstring as reStructuredText.

    Formulas are set, other indented blocks are literal; | and * stand for themselves.
    """
    converted: list[str] = []
    first = FIRST_LINE.fullmatch(lines[0]) if lines else None
    if first:
        converted += ["", ".. math::", "", f"   {latex(first['formula'])}", ""]
        lines = [f"({first['source']})", *lines[1:]]
    while lines:
        size = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
        if size:
            converted += lines[:size]
        elif lines[0].startswith("  ") and not "".join(converted[-1:]):
            size = next((n for n, line in enumerate(lines) if re.match(r"\S", line)), len(lines))
            block = lines[:size]
            if any(map(is_formula, block)):
                converted += [".. math::", "", f"   {aligned([b for b in block if b.strip()])}", ""]
            else:
                converted += ["::", "", *block]
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
