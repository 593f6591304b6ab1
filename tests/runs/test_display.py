"""What a person sees of a run."""

import json

import numpy as np
from etils import epath

from capsjax.runs import display
from capsjax.runs.history import History

TRAIN = {"loss": 0.5, "accuracy": 0.9}


def test_lines_where_there_is_no_terminal(tmp_path, monkeypatch, capsys):
    """A resumed run; its second end of an epoch comes 20 seconds after the first dispatch."""
    clock = iter([100.0, 120.0])
    (tmp_path / "seed_3").mkdir()
    shown = display.Display(epath.Path(tmp_path / "seed_3"), History(), first=10, total=40)
    monkeypatch.setattr(shown._bar, "get_time", lambda: next(clock, 120.0))
    shown.update(20, 50.0, 0.5, 0.9)
    shown.epoch(2, TRAIN, 0.8)
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", -1)
    shown.update(30, 50.0, 0.4, 0.95)
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "seed 3  epoch   2  step 20/40  loss 0.5000  accuracy 90.00%  validation 80.00%  "
        "50 images/s"
    )
    assert second == ("seed 3  step 30/40  loss 0.4000  accuracy 95.0%  50 images/s  0:00:20 left")


def test_the_file_follows_the_history(tmp_path):
    history = History()
    history.add_steps(0, {"loss": np.float32([1, 2])}, every=1, epoch=1)
    with display.Display(epath.Path(tmp_path), history, first=2, total=4) as shown:
        history.add_validation(2, 1, 0.5)
        shown.epoch(1, TRAIN, 0.5)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history.records
    older = History(history.records[:1])
    with display.Display(epath.Path(tmp_path), older, first=1, total=4):
        pass
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
