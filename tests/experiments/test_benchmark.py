import json
from dataclasses import replace

import benchmark
import jax
from _benchmark import models as step_of_models
from _benchmark import routing

from capsjax import models
from capsjax.routing import dynamic_routing

TINY = replace(models.CapsNetConfig(), width=1 / 32, kernel_size=3)


def test_rows_compare_the_textbook_with_the_library(monkeypatch):
    def both(votes):
        return dynamic_routing(votes, num_iterations=3).poses

    votes = jax.random.normal(jax.random.key(0), (4, 6, 3, 2))
    row = routing.Row("tiny", (votes,), lambda v: routing.textbook_dynamic(v, 3), both, 1e3, "")
    monkeypatch.setitem(routing.ROWS, "a", lambda: row)
    record = routing.compare("a", 2, (1e9, 1e9))
    for kind in ("forward", "forward+backward"):
        assert record[kind]["relative_difference"] < 1e-5
        assert record[kind]["capsjax_seconds"] > 0


def test_a_step_of_a_network_is_measured(tmp_path, capsys):
    models.register("tiny_capsnet", models.CapsNet, TINY)
    output = tmp_path / "out.json"
    step_of_models.run(
        benchmark.parser().parse_args(
            ["models", "--names=tiny_capsnet", "--batch_size=2", f"--output={output}"]
        )
    )
    (record,) = json.loads(output.read_text())["networks"]
    assert record["seconds"] > 0
    assert record["megabytes"] > record["temporary_megabytes"] > 0
    assert f"| `tiny_capsnet` | {record['parameters']:,} |" in capsys.readouterr().out


def test_what_is_wrong_is_said_before_anything_is_measured(fails):
    assert "unknown model 'foo'" in fails(benchmark, "models", "--names=foo")
    assert "--batch_size must be at least 1, got 0" in fails(benchmark, "models", "--batch_size=0")
    assert "--repeats must be at least 1" in fails(benchmark, "routing", "--repeats=0")
