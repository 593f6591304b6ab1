import re

import models as script_models
import pytest
from rich.console import Console

from capsjax import models
from capsjax.runs import display


def shown(capsys, *arguments):
    script_models.main(script_models.parser().parse_args(arguments))
    return capsys.readouterr().out


@pytest.fixture
def few(monkeypatch):
    """Two networks in place of all."""
    published = {name: models.lookup(name) for name in ("sabour2017_capsnet", "gu2021_convnet_avg")}
    monkeypatch.setattr(models, "_PUBLISHED", published)


def test_as_a_user_runs_it(script):
    done = script("models.py", "gu2021_convnet_avg", "--input=20x20x3")
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    assert "gu2021_convnet_avg: 20×20×3, 10 classes" in done.stdout
    assert re.search(r"convs\.1 +│ bias 256, kernel 9×9×256×256 +│ 5,308,672", done.stdout)


@pytest.mark.usefixtures("few")
def test_all_with_published_counts(capsys):
    text = shown(capsys)
    assert re.search(r"sabour2017_capsnet │ 28×28×1 │ +10 │ +8,215,568 │ 8,215,568 │", text)
    assert re.search(r"gu2021_convnet_avg │ 40×40×1 │ +10 │ +5,332,234 │ +5\.3M │", text)


def test_names_are_whole_on_a_narrow_terminal(capsys, monkeypatch):
    longest = sorted(models.names(), key=len)[-3:]
    monkeypatch.setattr(models, "_PUBLISHED", {name: models.lookup(name) for name in longest})
    monkeypatch.setattr(display, "console", lambda: Console(width=80, force_terminal=True))
    text = shown(capsys)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]
    assert max(map(len, lines)) == 80
    assert all(any(name in line for line in lines) for name in longest)


@pytest.mark.usefixtures("few")
def test_networks_that_cannot_have_the_input_are_named(capsys):
    text = shown(capsys, "--input=16x20x1")
    assert re.search(r"^sabour2017_capsnet: .* the smallest is 17×17", text, re.MULTILINE)
    assert "┃" not in text, "an empty table"


def test_layers_couplings_and_options(capsys):
    text = shown(capsys, "sabour2017_capsnet")
    assert re.search(r"classes +│ kernel 1152×8×10×16 +│ 1,474,560", text)
    assert re.search(r"classes +│ 10×16 +│ 1152×10", text)
    assert re.search(r"scores \(lengths\) +│ 10", text)
    assert re.search(r"reconstruction +│ 'conditional'", text)


def test_operations_are_xlas():
    """Two for each parameter and position, and some more."""
    model = script_models.outline("gu2021_convnet_avg", (20, 20, 1), 10)
    output, operations = script_models.describe(model, (20, 20, 1))
    assert output.scores.shape == (1, 10)
    products = 12**2 * 81 * 256 + 2**2 * 81 * 256**2 + 256 * 10
    assert 2 * products < operations < 2.01 * products
