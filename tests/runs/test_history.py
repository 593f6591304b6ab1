import json

import numpy as np
import pytest

from capsjax.runs.history import Diverged, History


def steps(*losses):
    return {"loss": np.array(losses, np.float32)}


def test_intervals_are_means_whatever_the_dispatches():
    whole, parts = History(), History()
    whole.add_steps(0, steps(1, 2, 3, 4, 5), every=2, epoch=1)
    parts.add_steps(0, steps(1), every=2, epoch=1)
    parts.add_steps(1, steps(2, 3), every=2, epoch=1)
    parts = History(**json.loads(json.dumps(parts.to_json())))  # through a checkpoint
    parts.add_steps(3, steps(4, 5), every=2, epoch=1)
    for history in (whole, parts):
        history.close_interval(5, epoch=1)
    assert whole.to_json() == parts.to_json()
    assert [r["loss"] for r in whole.records] == [1.5, 3.5, 5.0]
    assert whole.epoch_means(1) == {"loss": pytest.approx(3.0)}


def test_what_is_being_saved_does_not_change():
    history = History()
    history.add_steps(0, steps(1, 2, 3), every=2, epoch=1)
    saved = history.to_json()
    before = json.dumps(saved)
    history.add_steps(3, steps(4, 5, 6), every=2, epoch=1)
    assert json.dumps(saved) == before


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_names_its_step(value):
    with pytest.raises(Diverged, match=r"loss is \w+ at step 12 \(epoch 1\)$"):
        History().add_steps(10, steps(1, value, 2), every=5, epoch=1)
