"""The rules by which claims are decided, on numbers whose answers are known."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
from _reproduce import figures, measures, results
from _reproduce.compare import (
    LEVEL,
    SEEN,
    Comparison,
    Difference,
    Verdict,
    after_holm,
    decide,
    deviation,
    difference,
    drop,
    estimate,
    holm,
)
from _reproduce.experiment import (
    ENTROPY,
    SCALES,
    Claim,
    Column,
    Estimate,
    Experiment,
    Floor,
    Row,
    Scale,
)

from capsjax.training import config as configs


def a_record(row, value, seed=0, **metrics):
    return {
        "variant": row,
        "metrics": {"accuracy": value} | metrics,
        "times": {"training_seconds": 60.0},
        "series": {},
        "arrays": [],
        "seeds": [seed],
        "failed": None,
        **dict.fromkeys(("commit", "measured_at_commit", "device", "machine"), "x"),
        "versions": {"jax": "0.10"},
        "config": configs.to_json(configs.default("sabour2017_capsnet", "mnist")),
    }


def records(**values):
    return {row: [a_record(row, v, i) for i, v in enumerate(own)] for row, own in values.items()}


CLAIM = Claim("a is above b", "accuracy", "a", "b")


def an_experiment(*claims, **changes):
    plain = Experiment(
        title="Test",
        rows=(
            Row("a", "digits", printed={"accuracy": 90.0}),
            Row("b", "digits", printed={"accuracy": Estimate(80.0, 1.0, 4)}),
            Row("c", "digits"),
            Row("untrained", "digits", network="untrained"),
            Row("pixels", "digits", network="pixels"),
        ),
        measure=measures.accuracy(accuracy="test"),
        columns=(Column("accuracy", "Accuracy", best=100),),
        claims=claims or (CLAIM,),
        scales={name: Scale("All.") for name in SCALES},
    )
    return replace(plain, **changes)


def compare(experiment, scale, records):
    """Compares with records of some rows."""
    every = {row: list(records.get(row, ())) for row in experiment.at(scale)}
    return Comparison("x/y", experiment, scale, every)


def verdict(claim=CLAIM, *, scale="small", floor=None, **values):
    found = compare(an_experiment(claim, floor=floor), scale, records(**values))
    return found.verdicts[0]


HIGH, LOW, WIDE = (90.0, 90.2, 90.4), (80.0, 80.2, 80.4), (70.0, 95.0, 85.0)


def test_differences_are_scipys():
    ours, others = (90.0, 91.0, 93.0), (88.0, 90.5, 91.0, 89.0)
    found = difference(ours, others)
    welch = scipy.stats.ttest_ind(ours, others, equal_var=False)
    assert found.p == pytest.approx(welch.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    against = difference(ours, 90.0)
    assert against.p == pytest.approx(scipy.stats.ttest_1samp(ours, 90.0).pvalue)
    assert (against.low + against.high) / 2 == pytest.approx(against.mean)
    assert difference(90.0, ours) == (-against.mean, -against.high, -against.low, against.p)
    assert difference((1.0, 1.0), (1.0, 1.0)).p == 1
    assert difference((2.0, 2.0), (1.0, 1.0)).p == 0
    assert difference((2.0, 2.0), (0.0, 3.0)).p > 0.5, "one of them varies"


def test_claims():
    assert verdict(a=HIGH, b=LOW).verdict == "holds"
    assert verdict(a=LOW, b=HIGH).verdict == "does not hold"
    assert verdict(a=WIDE, b=LOW).verdict == "within chance"
    assert verdict(a=HIGH).reason == "without “b”"
    assert verdict(a=HIGH, b=LOW, scale="smoke").verdict == "not run"
    alone = verdict(a=HIGH, b=(80.0, 81.0))
    assert (alone.verdict, alone.reason) == ("not decided", "fewer than 3 runs: 2 of “b”")
    as_good = replace(CLAIM, slack=11.0)
    assert verdict(as_good, a=LOW, b=HIGH).verdict == "holds"
    assert verdict(Claim("low", "accuracy", 85.0, "b"), b=LOW).verdict == "holds"


def test_a_claim_must_beat_all_of_its_controls():
    claim = replace(CLAIM, less=("untrained", "pixels"))
    assert verdict(claim, a=HIGH, untrained=LOW, pixels=(50.0,)).verdict == "holds"
    beaten = verdict(claim, a=HIGH, untrained=LOW, pixels=(99.0,))
    assert (beaten.verdict, beaten.against) == ("does not hold", "pixels")
    assert verdict(claim, a=HIGH, untrained=WIDE, pixels=(50.0,)).verdict == "within chance"
    near, far = (85.0, 85.1, 85.2), (70.0, 71.0, 75.0)
    hardest = verdict(replace(claim, less=("b", "c")), a=HIGH, b=near, c=far)
    assert hardest.against == "c", "that with the largest p, which Holm's correction takes"


def test_one_of_several_comparisons_refutes_only_after_correction():
    below, above = (79.4, 79.9, 80.0), (80.4, 80.5, 80.9)
    alone = verdict(a=below, b=above)
    assert alone.verdict == "does not hold"
    assert 0.025 < alone.difference.p < 0.05
    of_two = verdict(replace(CLAIM, less=("b", "c")), a=below, b=above, c=(50.0, 50.1, 50.2))
    assert (of_two.verdict, of_two.against) == ("within chance", "b")
    assert of_two.difference.p == 2 * alone.difference.p
    said = results.in_words(of_two, an_experiment(of_two.claim))
    assert "before correction for 2 comparisons; 3 and 3 seeds" in said


def test_what_did_not_learn_decides_nothing():
    floor = Floor("accuracy", 85.0)
    found = verdict(a=HIGH, b=(90.0, 80.0, 90.0), floor=floor)
    assert found.reason == "“b” did not learn (80.0; required: at least 85 %)"
    assert verdict(a=HIGH, b=HIGH, c=LOW, floor=floor).verdict == "within chance", "not about “c”"
    anyway = replace(CLAIM, any_accuracy=True)
    assert verdict(anyway, a=HIGH, b=(90.0, 80.0, 90.0), floor=floor).verdict == "within chance"
    assert verdict(anyway, a=LOW, b=LOW, floor=Floor("accuracy", 99.0)).reason.startswith("“a” did")
    plain = an_experiment(anyway)
    rows = tuple(replace(row, floor=Floor("accuracy", 99.0)) for row in plain.rows)
    by_row = compare(replace(plain, rows=rows), "small", records(a=HIGH, b=LOW)).verdicts[0]
    assert by_row.reason.startswith("“a” did not learn"), "a floor of the row alone"
    diverged = records(a=HIGH, b=HIGH)
    diverged["b"][1] |= {"failed": "at step 1 the loss is nan", "metrics": {}}
    found = compare(an_experiment(floor=floor), "small", diverged)
    assert found.failed == {"b": "1 of 3 runs diverged"}
    assert found.cells["accuracy"]["b"].ours.runs == 2
    assert "b (did not learn) | 2 of 3 |" in results.markdown("x/y", results.blocks([found]))
    for value, learned in ((2.0, True), (4.0, False)):
        experiment = an_experiment(floor=Floor("error", 3.0))
        found = compare(experiment, "small", {"a": [a_record("a", 0, error=value)]})
        assert ("a" not in found.failed) == learned


def test_a_claim_about_routing_needs_a_network_that_routes():
    claim = replace(CLAIM, routes="a")
    made = records(a=HIGH, b=LOW)
    for entropy, expected in ((None, "not decided"), (99.6, "not decided"), (80.0, "holds")):
        for record in made["a"]:
            record["metrics"] |= {} if entropy is None else {ENTROPY: entropy}
        found = compare(an_experiment(claim), "small", made)
        assert found.verdicts[0].verdict == expected
        assert "“a” is 10.00 above “b”" in results.in_words(found.verdicts[0], found.experiment)
    made["b"][0]["metrics"]["parameters"] = 12_345
    made["b"][0]["series"] = {"validation": [50.0, 60.0]}
    page = results.markdown("x/y", results.blocks([found]))
    assert "| a | – | 50 | 80.0 ± 0.0 | – |" in page
    assert "| b | 12,345 | 34 ± 28 | – | – |" in page, "one of three stopped after 2 epochs"


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_a_test_that_stands_in_two_tables_counts_once():
    first = Difference(1.0, 0.5, 1.5, p=0.02)
    tests = (first, first, first._replace(p=0.04), None)
    verdicts = [Verdict(None, "not run" if x is None else "holds", difference=x) for x in tests]
    verdicts += [Verdict(None, "not decided", "it did not route", difference=first)]
    assert after_holm(verdicts) == ["not run", "not decided", "holds", "holds"]
    assert decide(difference(HIGH, LOW)._replace(p=0.06)) == "within chance"


def test_power_is_relative_to_the_error():
    """The paper's errors of 10 and 20 % differ by a third of their sum."""
    assert verdict(a=(55.0, 60.0, 65.0), b=(60.0, 65.0, 70.0)).seen
    assert verdict(a=(60.0, 75.0, 90.0), b=(65.0, 80.0, 50.0)).seen is False
    apart = {"a": (60.0, 75.0, 90.0), "b": (65.0, 80.0, 50.0)}
    assert verdict(replace(CLAIM, slack=50.0), **apart).seen, "with what the claim allows"
    turned = replace(CLAIM, more="b", less="a", slack=50.0)
    assert verdict(turned, **apart).seen is False, "the paper's own is on the other side"
    assert verdict(replace(CLAIM, less="c"), a=HIGH, c=LOW).seen is None, "not printed"


@pytest.mark.parametrize("runs", [3, 5])
def test_a_difference_that_counts_as_seen_is_found_in_three_quarters_of_cases(runs):
    ours, others, *seen = np.random.default_rng(0).normal(size=(4, 4000, runs))
    welch = partial(scipy.stats.ttest_ind, axis=1, equal_var=False)
    interval = welch(*seen).confidence_interval(1 - LEVEL)
    half = (interval.high - interval.low) / 2  # as each run shows it, not the mean
    found = welch(ours + SEEN * half[:, None], others).pvalue < LEVEL
    assert np.mean(found) == pytest.approx(0.76, abs=0.03)


def test_a_deviation_over_a_line():
    """The printed .64 of dynamic routing in Tsai et al. 2020, figure 4."""
    printed = dict(zip("abcde", (84.08, 83.30, 82.88, 82.90, 82.11), strict=True))
    spread = Column("spread", "", derive=deviation, printed={"dynamic": 0.64})
    experiment = an_experiment(
        Claim("it varies", "spread", "dynamic", 0.0),
        rows=tuple(Row(name, "digits", line="dynamic") for name in printed),
        columns=(Column("accuracy", "Accuracy"), spread),
    )
    ours = records(**{name: (value,) * 3 for name, value in printed.items()})
    found = compare(experiment, "full", ours)
    assert round(found.cells["spread"]["dynamic"].ours.mean, 2) == 0.64
    assert found.verdicts[0].verdict == "holds"
    del ours["e"]
    assert compare(experiment, "full", ours).cells["spread"]["dynamic"].ours is None


def test_drops_are_paired_by_seed():
    experiment = an_experiment(
        Claim("b loses", "drop", "b", 0.0),
        rows=(
            Row("a", "digits", line="x", floor=Floor("accuracy", 50.0)),
            Row("b", "digits", line="x"),
        ),
        columns=(Column("accuracy", "A"), Column("drop", "D", derive=drop())),
    )
    made = records(a=(90.0, 60.0, 75.0), b=(89.0, 59.1, 73.9, 1.0))
    found = compare(experiment, "small", made)
    assert found.cells["drop"]["b"].ours == estimate([1.0, 60 - 59.1, 75 - 73.9])
    assert found.verdicts[0].verdict == "holds"
    low = records(a=(90.0, 40.0, 75.0), b=(89.0, 39.0, 74.0))
    assert "“a” did not learn" in compare(experiment, "small", low).verdicts[0].reason


def test_verdicts_in_words():
    found = verdict(a=HIGH, b=LOW)
    text = results.in_words(found, an_experiment())
    assert re.fullmatch(
        r"“a” is 10.00 above “b” \(95 %: \+9.55 to \+10.45; 3 and 3 seeds\); in the paper \+10.00",
        text,
    )
    # Of several scales the largest that tested the claim counts.
    large = compare(an_experiment(), "full", records(a=HIGH[:1], b=LOW))
    small = compare(an_experiment(), "small", records(a=HIGH, b=LOW))
    assert results.summary([large, small]) == "holds: 1"
    partly = compare(an_experiment(), "full", records(a=HIGH))
    page = results.markdown("x/y", results.blocks([partly, small]))
    assert page.count("| a is above b |") == 1, "as only the other scale tested it"
    equal = verdict(a=HIGH, b=HIGH)
    assert "“a” is within 0.005 of “b”" in results.in_words(equal, an_experiment())
    few = compare(an_experiment(), "small", records(a=HIGH[:1], b=LOW))
    assert results.summary([partly, few]) == "not decided: 1", "it was run, if at the smaller scale"
    index = results.index({"x/y": [large, small]}, {"x": "It holds."})
    assert (
        "1 of 1 tables and figures were run; of the 1 claims that a rule can decide, 1 were"
        in index
    )
    assert "- **[x](../papers/x.md)**: It holds." in index
    assert "| [x](../papers/x.md) | 1 | 0 | 0 | 0 | 0 |" in index


def test_lines_of_equal_steps_join_the_traces():
    made = records(a=(0.0,), b=(0.0,))
    for x, (record,) in zip((1, 3), made.values(), strict=True):
        record["series"] = {"entropy": [x, x + 1], "test": [1, 2], "test steps": [5, 9]}
    draw = figures.beside(figures.trace)
    (axes,) = draw(compare(an_experiment(), "small", made)).axes
    grey = [line.get_xydata().tolist() for line in axes.lines if line.get_linewidth() == 0.8]
    assert grey == [[[1, 1], [3, 1]], [[2, 2], [4, 2]]]
