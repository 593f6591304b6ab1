"""Formulas of docstrings, as the documentation sets them."""

import importlib.util
import inspect

import pytest

from capsjax import functional, losses, routing
from tests.pages import ROOT

_spec = importlib.util.spec_from_file_location("_formulas", ROOT / "docs/_formulas.py")
formulas = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(formulas)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("p_j", "p_{j}"),
        ("Σ_i c_ij v_ij", r"\sum _{i} c_{ij} v_{ij}"),
        ("softmax_j(b_i·)", r"\operatorname{softmax}_{j}(b_{i\cdot })"),
        ("<v_ij, p_j>", r"\langle v_{ij}, p_{j}\rangle "),
        ("σ²_jd + variance_floor", r"\sigma _{jd}^{2} + \text{variance_floor}"),
        ("β_u,j + log |s|²", r"\beta _{u,j} + \operatorname{log} \lvert s\rvert ^{2}"),
        ("Σ_m'd K_dm'm s̃_m'd", r"\sum _{m'd} K_{dm'm} \tilde{s}_{m'd}"),
    ],
)
def test_latex(text, latex):
    assert formulas.latex(text) == latex


@pytest.mark.parametrize(
    "function",
    [
        functional.squash,
        functional.exponential_squash,
        losses.margin_loss,
        losses.spread_loss,
        routing.attention_routing,
        routing.dynamic_routing,
        routing.em_routing,
        routing.inverted_attention_routing,
        routing.uniform_routing,
    ],
    ids=lambda function: function.__name__,
)
def test_docstrings(function):
    """One formula each; no sign is left that LaTeX does not know, and no brace open."""
    lines = formulas.docstring(inspect.getdoc(function).splitlines())
    assert lines.count(".. math::") == 1
    formula = lines[lines.index(".. math::") + 2]
    assert formula.strip().isascii()
    assert formula.count("{") == formula.count("}")


def test_other_blocks_stay_as_they_are():
    lines = formulas.docstring(inspect.getdoc(routing.LinearVotes).splitlines())
    assert ".. math::" not in lines
    assert "  matrix         A = X = Y = √D" in lines
    assert formulas.docstring(["A |length|, and *args.", "size: D."]) == [
        r"A \|length\|, and \*args.",
        r"size: D\.",
    ]
