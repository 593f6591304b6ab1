import jax

from capsjax.runs import loop
from capsjax.runs.display import Profiler
from tests.tiny import tiny_config

ONE = jax.devices()[:1]


def test_a_trace_changes_nothing(npz, tmp_path, tiny_run):
    directory = tmp_path / "run"
    monitoring = loop.Monitoring(profile=(3, 5))
    loop.train(tiny_config(npz), directory, devices=ONE, monitoring=monitoring)
    assert (directory / "metrics.jsonl").read_text() == (tiny_run / "metrics.jsonl").read_text()
    (trace,) = (directory / "profile").rglob("*.xplane.pb")
    assert trace.stat().st_size > 0


def test_dispatches_end_where_a_profile_begins_or_ends(tmp_path):
    profiler = Profiler(tmp_path, (3, 5))
    ends, step = [], 0
    while step < 14:
        step += profiler.cut(step, 256 if step < 5 else 2)
        ends.append(step)
    assert ends == [3, 5, 7, 9, 11, 13, 15]
