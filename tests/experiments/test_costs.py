"""Estimated hours of full scale."""

import json

import _configs
import pytest
from _reproduce import costs
from _reproduce.experiment import Experiment, Row, Scale
from papers import EXPERIMENTS

FILE = "sabour2017_mnist"


def an_experiment(seeds, *rows):
    return Experiment(
        title="A table",
        rows=rows,
        measure=lambda run: None,
        columns=(),
        scales={"full": Scale("All.", seeds=seeds)},
    )


def test_a_compiled_network_takes_what_was_compiled():
    config = _configs.read(FILE)
    records = json.loads(costs.COMPILED.read_text("utf-8"))
    of_config = [r for r in records if (r["name"], r["program"]) == (FILE, "training")]
    on = {r["target"]: r for r in of_config if r["group"] == "networks"}
    seconds = 4 * on["v5e:2x2"]["estimated"]["milliseconds"] / 1e3 / 128
    assert costs.seconds_for_an_image(config, "v5e") == pytest.approx(seconds)
    moved = on["h100"]["bytes_moved"]
    assert costs.seconds_for_an_image(config, "h100") == pytest.approx(moved / 3.35e12 / 128)
    # 54,000 images are trained on, 421 batches of 128 an epoch.
    assert costs.images_shown(config) == config.training.epochs * 421 * 128


def test_runs_add_up_and_are_counted_once():
    mine, same = Row("mine", FILE), Row("same", FILE)
    other = Row("other", FILE, {"training.epochs": 1})
    one = costs.estimate(an_experiment(1, mine))
    assert one.v5e_8 == pytest.approx(one.v5e / 8)
    twice = costs.estimate(an_experiment(2, mine, same))
    assert twice.images == 2 * one.images
    assert twice.v5e == pytest.approx(2 * one.v5e)
    both = costs.estimate(an_experiment(1, mine, other))
    assert both.images == one.images + 421 * 128


def test_the_estimates_are_of_todays_recipes():
    written = costs.read()
    assert written.keys() == EXPERIMENTS.keys()
    name = "choi2019/figure3"
    assert written[name] == pytest.approx(costs.estimate(EXPERIMENTS[name]), rel=1e-3)


def test_in_words():
    assert str(costs.Cost(1, 1234.5, 12.34, 0.01)) == "1,234 / 12 / <0.1"
