"""The examples of the page about analysis run as printed."""

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of this copy")
def test_examples():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert tried > 20
    assert failed == 0
