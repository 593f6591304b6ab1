import json
from dataclasses import replace

import benchmark
import jax
import numpy as np
import pytest
from _benchmark import device, routing

from capsjax import models
from capsjax.routing import dynamic_routing
from capsjax.routing.kernels import forms, interpreted, tpu
from capsjax.routing.kernels.terms import TERMS, Sizes

TINY = replace(models.CapsNetConfig(), width=1 / 32, kernel_size=3)


def test_rows_compare_the_textbook_with_the_library(monkeypatch):
    def both(votes):
        return dynamic_routing(votes, num_iterations=3).poses

    votes = jax.random.normal(jax.random.key(0), (4, 6, 3, 2))
    row = routing.Row("tiny", (votes,), lambda v: routing.textbook_dynamic(v, 3), both)
    monkeypatch.setitem(routing.ROWS, "a", lambda budget: row)
    record = routing.compare("a", 2)
    for kind in ("forward", "forward+backward"):
        assert record[kind]["relative_difference"] < 1e-5
        assert record[kind]["capsjax_seconds"] > 0


def run(*arguments):
    benchmark.main(benchmark.parser().parse_args([str(a) for a in arguments]))


@pytest.fixture
def on_a_device(monkeypatch, tmp_path):
    """One kind of votes and one kernel, interpreted; returns the file that is written."""
    sizes = Sizes((7,), 3, 3, 2, 2, 2)
    monkeypatch.setattr(device, "SIZES", {"matrices": sizes})
    what = "∂E/∂c"
    monkeypatch.setattr(device, "COMPUTED", {what: device.COMPUTED[what]})
    tiny = routing.dynamic_row(routing.NO_BUDGET, 4, batch=2)
    monkeypatch.setitem(routing.ROWS, "a", lambda budget: tiny)
    with interpreted("tpu"):
        yield tmp_path / "device.json"


def test_a_device_is_checked_and_timed(on_a_device, capsys):
    run("routing", "--device", "--rows=a", "--repeats=1", f"--output={on_a_device}")
    report = json.loads(on_a_device.read_text())
    (checked,) = report["kernels"]
    assert checked["form"] == "kernel"
    assert checked["agrees"]
    assert checked["relative_difference"] < 1e-5
    (row,) = report["rows"]
    for kind in ("forward", "forward+backward"):
        assert all(row[kind][f"{v}_seconds"] > 0 for v in ("textbook", "products", "kernels"))
        assert row[kind]["relative_difference"] < 1e-5
    printed = capsys.readouterr().out
    assert report["about"]["device"] in printed
    assert "agrees" in printed


@pytest.mark.parametrize("wrong", [1.01, float("nan")])
def test_a_kernel_with_wrong_numbers_is_found(on_a_device, monkeypatch, wrong):
    right = tpu.differentiate
    monkeypatch.setattr(tpu, "differentiate", lambda *args, **names: wrong * right(*args, **names))
    with pytest.raises(ValueError, match="a kernel's numbers are wrong on this device"):
        run("routing", "--device", "--rows=a", "--repeats=1", f"--output={on_a_device}")
    assert not json.loads(on_a_device.read_text())["kernels"][0]["agrees"]


def test_every_kernel_has_a_check():
    """Votes of every kind, on both platforms."""
    for platform, others in (("tpu", set()), ("cuda", {"matrices 8×8"})):
        target = forms.Target(platform, capability=(8, 0))
        chosen = {name: forms.choose(target, s, np.float32) for name, s in device.SIZES.items()}
        assert {name for name, form in chosen.items() if not form.is_kernel} == others
    assert {name for name in device.COMPUTED if "∂" in name} == {f"∂{s}/∂{x}" for s, x in TERMS}


@pytest.mark.slow
def test_a_step_of_a_network_is_measured(tmp_path, capsys):
    models.register("tiny_capsnet", models.CapsNet, TINY)
    output = tmp_path / "out.json"
    run("models", "--names=tiny_capsnet", "--batch_size=2", f"--output={output}")
    (record,) = json.loads(output.read_text())["networks"]
    assert record["seconds"] > 0
    assert record["megabytes"] > record["temporary_megabytes"] > 0
    assert f"| `tiny_capsnet` | {record['parameters']:,} |" in capsys.readouterr().out
