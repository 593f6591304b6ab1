"""What report.py --check finds."""

import shutil

import pytest
import report
from _report.check import check, read
from _reproduce import results, tables
from _reproduce.registry import EXPERIMENTS

from tests.experiments.conftest import ROOT


@pytest.fixture
def copy(tmp_path):
    """The pages, to be changed."""
    for folder in ("papers", "results"):
        shutil.copytree(
            ROOT / "docs" / folder,
            tmp_path / "docs" / folder,
            ignore=shutil.ignore_patterns("*.png", "*.svg"),
        )
    for name in ("README.md", "docs/index.md", "docs/results.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(root, name, old, new):
    file = root / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_the_pages_hold(capsys):
    report.main(report.parser().parse_args(["--check"]))
    assert "say what" in capsys.readouterr().out


def test_pages_with_records_say_what_these_do():
    (store,) = results.folders(ROOT / "docs/results/records")
    found = [results.gather(store, name, experiment) for name, experiment in EXPERIMENTS.items()]
    found = [comparison for comparison in found if comparison.has_page]
    assert found
    for comparison in found:
        page = ROOT / "docs/results" / f"{comparison.stem}.md"
        assert page.read_text() == tables.page(comparison), comparison.name


TABLE, PAPER = "docs/results/gu2021_table1.md", "docs/papers/gu2021.md"
CLAIM = "| dynamic routing harms CapsNet |"


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("README.md", "tables and figures by name", "names", "README.md does not say"),
        ("README.md", "networks by name, training", "networks, training", "README.md does not"),
        ("docs/index.md", "tables and figures of five", "of five", "docs/index.md does not say"),
        ("docs/results/index.md", "were run.", "ran.", "index.md does not say"),
        (PAPER, "In short: ", "In short: truly, ", "index.md does not say 'truly, "),
        (
            "docs/results/index.md",
            "| 3 of 3 | undecided: 3 |",
            "| 2 of 3 | undecided: 3 |",
            "index.md does not say '3 of 3 | undecided: 3'",
        ),
        (
            TABLE,
            f"{CLAIM} undecided",
            f"{CLAIM} holds",
            "harms CapsNet': holds; by the page's numbers: undecided",
        ),
        (TABLE, "| +2.81 |", "| +2.18 |", "the published difference is +2.81, not +2.18"),
        (TABLE, CLAIM, "| a claim |", "the claim 'a claim' no longer exists"),
        (TABLE, CLAIM, "| a claim |", "'dynamic routing harms CapsNet' is not on the page"),
        (
            TABLE,
            "by the sizes",
            "by sizes",
            "fewest parameters' is not on the page with its reason",
        ),
        (TABLE, "| CapsNet |", "| CapsNets |", "row 'CapsNets' no longer"),
        (TABLE, "| 79.00 |", "| 97.00 |", "CapsNet: 97.00 as printed in 'affNIST (generated), acc"),
        (TABLE, "- different: affNIST is", "- affNIST is", "affNIST is generated (docs/data.md),"),
        (
            TABLE,
            "## translated MNIST",
            "## moved MNIST",
            "column 'moved MNIST, accuracy, %' no longer",
        ),
        (PAPER, "75.90 and 78.80 %", "12.34 and 78.80 %", "12.34 is on none"),
        (PAPER, "4 of 7 claims hold", "7 of 7 claims hold", "4 of 7 claims hold, not"),
        (PAPER, "9 claims do not hold", "7 claims do not hold", "9 claims do not hold, not"),
        (PAPER, "gu2021_table5.md", "gu2021_table9.md", "table9.md does not exist"),
        (PAPER, "[table5](../results/gu2021_table5.md)", "Table 5", "no results page"),
    ],
)
def test_what_no_longer_holds_is_found(copy, name, old, new, found):
    change(copy, name, old, new)
    assert any(found in line for line in check(copy)), check(copy)


def test_an_older_recipe_is_found(copy):
    name = "docs/results/gu2021_table1.md"
    page = read((copy / name).read_text())
    change(copy, name, page.keys["CapsNet"], "00000000")
    assert check(copy) == [
        "gu2021/table1: CapsNet: made with an older recipe, which the page does not say"
    ]


def test_a_page_of_no_name_is_found(copy):
    (copy / "docs" / "results" / "gu2021_table9.md").write_text("# gu2021/table9\n")
    assert check(copy) == ["docs/results/gu2021_table9.md: this name no longer exists"]


def test_pages_are_read_as_they_are_written():
    page = read((ROOT / "docs" / "results" / "tsai2020_figure4.md").read_text())
    assert page.scale == "small"
    assert page.data == ["cifar10_jpeg"]
    assert page.tables["CIFAR-10, accuracy, %"]["dynamic, r = 1"].mean == 44.57
    assert page.tables["CIFAR-10, accuracy, %"]["A: no LayerNorm, r = 3"].mean == 35.51
    assert page.verdicts["LayerNorm is needed"] == "holds (by sign alone)"
    some = read((ROOT / "docs" / "results" / "tsai2020_table1.md").read_text())
    assert "inverted, ResNet, CIFAR-100" not in some.tables["Test accuracy, %"]
