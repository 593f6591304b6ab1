"""Tables and figures by name: the rules, the records, what a user gets wrong, and two names run."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reproduce
from _reproduce import figures, measures, recipes, registry, results, runs, tables
from _reproduce.compare import Ordering, Row, compare, estimate, judge, kendall
from _reproduce.experiment import (
    SCALES,
    Claim,
    Column,
    Estimate,
    Experiment,
    Measured,
    Scale,
    Variant,
)
from flax import nnx

from capsjax import models
from capsjax._files import lock as hold
from capsjax.runs import checkpoints
from capsjax.training import config as configs
from capsjax.training.build import build_model
from tests.experiments.test_report import Page
from tests.models.counting import count

SHAPES = {
    "mnist": ((28, 28, 1), 10),
    "affnist_generated": ((40, 40, 1), 10),
    "multimnist": ((36, 36, 1), 10),
    "multimnist_a": ((36, 36, 1), 10),
    "multimnist_b": ((36, 36, 1), 10),
    "diverse_multimnist": ((36, 36, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "cifar100": ((32, 32, 3), 100),
    "blobs": ((1, 1, 2), 3),
}
EVERY = [
    (name, scale, variant)
    for name, experiment in registry.EXPERIMENTS.items()
    for scale in SCALES
    for variant in experiment.at(scale)
]


def test_every_run_has_a_config():
    for name, scale, variant in EVERY:
        config = recipes.run_config(registry.EXPERIMENTS[name], variant, scale, 0, {})
        source = recipes.source_of(config)
        assert source in ("digits", "blobs") if scale == "smoke" else source in SHAPES


@pytest.mark.parametrize("scale", ["full", "small"])
def test_figure_3_of_gu2021_compares_networks_of_one_size(scale):
    def size(variant):
        config = recipes.run_config(registry.EXPERIMENTS["gu2021/figure3"], variant, scale, 0, {})
        return count(**config.model, input_shape=(36, 36, 1))

    assert size("ConvNet-FC(LK), ×10") == pytest.approx(size("CapsNet, ×10"), rel=1e-3)


@pytest.mark.parametrize("name", registry.EXPERIMENTS)
def test_what_is_printed_and_claimed_is_measured_on_known_variants(name):
    experiment = registry.EXPERIMENTS[name]
    metrics = {column.metric for column in experiment.columns}
    rows = {}
    for column in experiment.columns:
        of_lines = {variant.line for variant in experiment.variants.values()}
        rows[column.metric] = of_lines if column.deviation_of else experiment.variants.keys()
        assert column.published.keys() <= rows[column.metric]
        assert not column.deviation_of or column.deviation_of in metrics
    for claim in experiment.claims:
        assert claim.metric in metrics
        named = {claim.more, claim.less} - {v for v in (claim.less,) if isinstance(v, float)}
        assert named <= rows[claim.metric]
    texts = [claim.text for claim in experiment.claims]
    assert len({*texts, *experiment.untested}) == len(texts) + len(experiment.untested)
    assert all(experiment.untested.values()), "a reason each"
    for scale in experiment.scales.values():
        assert set(scale.only) <= experiment.variants.keys()


@pytest.mark.slow
def test_every_network_of_full_scale_can_be_built():
    built = set()
    for name, scale, variant in EVERY:
        if scale != "full":
            continue
        config = recipes.run_config(registry.EXPERIMENTS[name], variant, scale, 0, {})
        shape, classes = SHAPES[config.data.name]
        key = (config.model.to_json(), shape)
        if key not in built:
            built.add(key)
            make = lambda c=config, s=shape, k=classes: models.create(  # noqa: E731
                **c.model, input_shape=s, num_classes=k, rngs=nnx.Rngs(0)
            )
            nnx.eval_shape(make)


# The rules, on numbers whose answers are known


def values(*numbers):
    return estimate(numbers)


CLAIM = Claim("a is above b", "accuracy", "a", "b")


def test_claims():
    assert judge(CLAIM, values(3.0, 3.2), values(1.0, 1.2)).verdict == "holds"
    assert judge(CLAIM, values(1.0, 1.2), values(3.0, 3.2)).verdict == "does not hold"
    assert judge(CLAIM, values(1.0, 3.0), values(1.5, 2.0)).verdict == "undecided"
    assert judge(CLAIM, None, values(1.0)).verdict == "not run"
    alone = judge(CLAIM, values(2.0), values(1.0, 1.1))
    assert alone.verdict == "holds (by sign alone)"
    assert alone.near is None
    # Standard errors of .1 in both rows.
    assert judge(CLAIM, values(3.0, 3.2), values(1.0, 1.2)).near == pytest.approx(0.08**0.5)
    as_good = replace(CLAIM, slack=0.5)
    assert judge(as_good, values(2.0), values(2.4)).verdict == "holds (by sign alone)"
    assert judge(as_good, values(2.0), values(2.4)).difference == pytest.approx(-0.4)
    assert judge(as_good, values(2.0), values(2.6)).verdict == "does not hold (by sign alone)"


def a_record(variant, value, seed=0):
    return {
        "variant": variant,
        "metrics": {"accuracy": value},
        "times": {"training_seconds": 60.0},
        "series": {},
        "seeds": [seed],
        "failed": None,
    }


def an_experiment(**changes):
    plain = Experiment(
        title="Test",
        variants={name: Variant("digits") for name in "abc"},
        measure=measures.accuracy(accuracy="test"),
        columns=(Column("accuracy", "Accuracy", {"a": 90.0, "b": Estimate(80.0, 1.0, 4)}),),
        claims=(CLAIM,),
        scales={name: Scale("All.") for name in SCALES},
    )
    return replace(plain, **changes)


def test_rows_and_ordering():
    records = {
        "a": [a_record("a", 70.0), a_record("a", 72.0, 1)],
        "b": [a_record("b", 80.5), a_record("b", 80.7, 1)],
    }
    found = compare("x/y", an_experiment(), "full", records)
    a, b, c = (found.rows["accuracy"][name] for name in "abc")
    assert a.ours.mean == 71
    assert a.ours.std == pytest.approx(math.sqrt(2))
    assert a.difference == -19
    assert a.verdict == "order 0/1, lower"
    # 0.6 from the printed mean; its standard error is 1/√4, ours 0.1.
    assert b.verdict == "order 0/1, same"
    assert c.ours is None
    assert kendall(found.rows["accuracy"].values()) == Ordering(-1.0, 2, (-1.0, -1.0))
    assert found.summary == "does not hold: 1"
    single = {name: records[name][:1] for name in "ab"}
    alone = compare("x/y", an_experiment(), "full", single)
    assert alone.summary == "does not hold (by sign alone): 1"


def test_a_published_difference_stands_out_or_not():
    def power(*values):
        """For two equal rows; the published 90 and 80 are 5.9 apart when scaled to 50."""
        records = {row: [a_record(row, x, i) for i, x in enumerate(values)] for row in "ab"}
        return compare("x/y", an_experiment(), "small", records).power

    assert power(49.0, 51.0) == "1 of 1"  # two standard errors of the difference are 2.8
    assert power(47.0, 53.0) == "0 of 1"  # 8.5
    assert power(50.0) == "–"
    assert tables.printed_difference(an_experiment(), CLAIM) == "+10.00"
    assert tables.printed_difference(an_experiment(), replace(CLAIM, less=95.0)) == "-5.00"
    assert tables.printed_difference(an_experiment(), replace(CLAIM, less="c")) == "–"


def test_one_run_is_not_exact():
    """It has no standard error of its own; the tolerance stands in for it."""
    printed = {"a": Estimate(80.0, 0.01, 4)}
    column = Column("accuracy", "Accuracy", printed, tolerance=0.3)
    for value, verdict in ((80.2, "same"), (80.4, "higher")):
        experiment = an_experiment(columns=(column,), claims=())
        found = compare("x/y", experiment, "full", {"a": [a_record("a", value)]})
        assert found.rows["accuracy"]["a"].verdict == verdict


def test_the_times_of_a_run_that_diverged_are_not_averaged():
    column = Column("training_seconds", "Training, seconds")
    failed = a_record("a", 0.0, 1) | {"metrics": {}, "times": {"training_seconds": 1.0}}
    records = {"a": [a_record("a", 70.0), failed | {"failed": "at step 1 the loss is nan"}]}
    found = compare("x/y", an_experiment(columns=(column,), claims=()), "small", records)
    assert found.rows["training_seconds"]["a"].ours == Estimate(60.0, None, 1)


def test_kendall_is_scipys():
    column = Column("accuracy", "Accuracy", {name: float(i) for i, name in enumerate("abcd")})
    ours = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 4.0}
    experiment = an_experiment(
        variants={name: Variant("digits") for name in "abcd"}, columns=(column,), claims=()
    )
    records = {name: [a_record(name, value)] for name, value in ours.items()}
    found = compare("x/y", experiment, "small", records)
    ordering = kendall(found.rows["accuracy"].values())
    assert ordering.tau == pytest.approx(2 / 3)  # five pairs of six agree
    assert ordering.interval is None  # one run each
    assert found.rows["accuracy"]["b"].verdict == "order 2/3"
    assert kendall([]) is None


def test_the_interval_of_an_ordering():
    """Two of three rows lie within their errors of each other, so a pair may be either way."""
    means = {"a": (70.0, 0.1), "b": (80.0, 3.0), "c": (81.0, 3.0)}
    rows = [Row(Estimate(m, e, 4), Estimate(p)) for p, (m, e) in enumerate(means.values())]
    low, high = kendall(rows).interval
    assert low == pytest.approx(1 / 3)
    assert high == 1
    assert kendall(rows) == kendall(rows)  # the same page each time
    text = tables._ordering(rows)
    assert text.endswith("τ = +1.00 (3 rows; 90 % interval from +0.33 to +1.00).")


def test_a_deviation_over_a_line():
    """The printed .64 of dynamic routing in Tsai et al. 2020, figure 4."""
    printed = dict(zip("abcde", (84.08, 83.30, 82.88, 82.90, 82.11), strict=True))
    deviation = Column("spread", "Deviation", {"dynamic": 0.64}, deviation_of="accuracy")
    experiment = an_experiment(
        variants={name: Variant("digits", line="dynamic") for name in printed},
        columns=(Column("accuracy", "Accuracy", printed), deviation),
        claims=(Claim("it varies", "spread", "dynamic", 0.0),),
    )
    records = {name: [a_record(name, value)] for name, value in printed.items()}
    found = compare("x/y", experiment, "full", records)
    assert round(found.rows["spread"]["dynamic"].ours.mean, 2) == 0.64
    assert found.rows["spread"]["dynamic"].verdict == "same"
    assert found.verdicts[0].verdict == "holds (by sign alone)"
    del records["e"]
    fewer = compare("x/y", experiment, "full", records)
    assert fewer.rows["spread"]["dynamic"].ours is None


def test_what_a_paper_quotes_is_shown_as_quoted():
    column = Column("accuracy", "Accuracy", {"a": 90.0}, {"SCAE": 92.21})
    found = compare("x/y", an_experiment(columns=(column,)), "small", {})
    assert "| SCAE (quoted by the paper) | – | 0 | 92.21 | – | – |" in tables.page(found)


def test_smoke_compares_nothing():
    records = {"a": [a_record("a", 90.0)], "b": [a_record("b", 80.0)]}
    found = compare("x/y", an_experiment(), "smoke", records)
    assert [verdict.verdict for verdict in found.verdicts] == ["not run"]
    assert not found.rows["accuracy"]["a"].verdict


def test_nothing_run():
    assert compare("x/y", an_experiment(), "small", {}).summary == "not run: 1"


# Single runs, on a data set of seconds


@pytest.fixture
def tiny(npz):
    """An experiment of one network on 8×8 digits."""
    changes = {
        "model.kernel_size": 3,
        "model.width": 1 / 32,
        "data.name": f"npz:{npz}",
        "data.max_shift": 1,
        "training.batch_size": 24,
        "training.epochs": 1,
        "training.log_every_steps": 20,
    }
    return an_experiment(variants={"a": Variant("sabour2017_mnist", changes)}, claims=())


def changed(experiment, **changes):
    """With other values in its row "a"."""
    row = experiment.variants["a"]
    return replace(experiment, variants={"a": replace(row, changes=dict(row.changes) | changes)})


@pytest.fixture
def store(tmp_path):
    return runs.Store(tmp_path / "small", "small", {}, None)


def today(store, experiment, variant):
    """The file of the variant's first run with today's recipe; None if there is none."""
    found = runs.recorded(store, "x/y", experiment, variant)
    return next((file for file, _, changes in found if not changes), None)


def test_an_interrupted_run_is_resumed_and_a_finished_one_is_not_repeated(tiny, store, capsys):
    def stops(run):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run(store, "x/y", replace(tiny, measure=stops), "a", 0)
    assert "epoch   1" in capsys.readouterr().out
    assert today(store, tiny, "a") is None
    record = runs.run(store, "x/y", tiny, "a", 0)
    assert "images to train on" not in capsys.readouterr().out, "it is finished"
    file = today(store, tiny, "a")
    assert record == runs.read_json(file)
    assert record["times"]["training_seconds"] > 0
    before = file.read_text()
    runs.run(store, "x/y", replace(tiny, measure=stops), "a", 0)
    assert file.read_text() == before
    gathered = results.gather(store, "x/y", tiny)
    assert gathered.rows["accuracy"]["a"].ours == Estimate(record["metrics"]["accuracy"])
    # Of other images, or without a number that the table shows: it is measured again, not trained.
    more = replace(tiny, scales=tiny.scales | {"small": Scale("More.", images=20)})
    again = runs.run(store, "x/y", more, "a", 0)
    assert (record["images"], again["images"]) == (10_000, 20)
    train = Column("train", "Training images")
    two = replace(
        more,
        columns=(*more.columns, train),
        measure=measures.accuracy(accuracy="test", train="train"),
    )
    assert "train" in runs.run(store, "x/y", two, "a", 0)["metrics"]
    assert "images to train on" not in capsys.readouterr().out


def test_a_training_of_before_an_option_is_measured_and_resumed(tiny, store, capsys):
    record = runs.run(store, "x/y", tiny, "a", 0)
    (directory,) = (store.folder / "runs").iterdir()
    old = directory.rename(directory.with_name(directory.name.replace("-", "-0", 1)))
    for file, part in ((old / "config.json", ()), (old / "time.json", ("config",))):
        made = runs.read_json(file)
        config = made["config"] if part else made
        del config["model"]["primary_relu"]
        runs.write_json(file, made)
    more = replace(tiny, scales=tiny.scales | {"small": Scale("More.", images=20)})
    capsys.readouterr()
    assert runs.run(store, "x/y", more, "a", 0)["metrics"] == record["metrics"]
    assert "images to train on" not in capsys.readouterr().out
    # One that was interrupted is resumed with today's options.
    runs.write_json(old / "time.json", runs.read_json(old / "time.json") | {"finished": False})
    assert runs.run(store, "x/y", tiny, "a", 0)["metrics"] == record["metrics"]
    assert f"{old}: finished before" in capsys.readouterr().out
    assert runs.read_json(old / "config.json")["model"]["primary_relu"] is False
    assert [directory.name for directory in (store.folder / "runs").iterdir()] == [old.name]


def test_results_of_an_older_recipe_are_named_kept_and_not_mixed(tiny, store):
    runs.run(store, "x/y", tiny, "a", 0)
    (file,) = (store.folder / "results").rglob("*.json")
    longer = changed(tiny, **{"training.epochs": 2})
    found = results.gather(store, "x/y", longer)
    assert found.rows["accuracy"]["a"].ours is None
    (line,) = found.left
    assert re.fullmatch(
        r"a, run 0 \(accuracy [\d.]+\): made with an older recipe \(training.epochs: 1 → 2\)", line
    )
    assert found.summary == "results kept apart only"
    assert "## Kept apart" in tables.page(found)
    # An option that the library got since, at its default, is no other recipe.
    record = json.loads(file.read_text())
    del record["config"]["model"]["primary_relu"]
    file.write_text(json.dumps(record))
    found = results.gather(store, "x/y", tiny)
    assert found.rows["accuracy"]["a"].ours
    assert not found.left
    relu = results.gather(store, "x/y", changed(tiny, **{"model.primary_relu": True}))
    assert "(model.primary_relu: not there → True)" in relu.left[0]
    # One that is gone makes another.
    record["config"]["model"]["conv_features"] = 0
    file.write_text(json.dumps(record))
    found = results.gather(store, "x/y", tiny)
    assert "model.conv_features: 0 → not there" in found.left[0]
    # So does a row that is gone.
    other = replace(tiny, variants={"b": tiny.variants["a"]})
    assert results.gather(store, "x/y", other).left == [
        "a: this row no longer exists at this scale"
    ]
    assert file.exists()
    # And a whole name.
    assert results.of_no_name(store, {"x/y"}) == []
    assert results.of_no_name(store, {"x/z"}) == ["x/y: this name no longer exists"]


def test_recipe_keys_tell_departures_from_the_defaults(tiny):
    def key(experiment, seed=0):
        return recipes.recipe_key(recipes.run_config(experiment, "a", "small", seed, {}))

    assert key(tiny) == key(tiny, seed=5) == key(changed(tiny, **{"model.squash": True}))
    assert key(tiny) != key(changed(tiny, **{"model.squash": False}))


def without_times(file):
    record = json.loads(file.read_text())
    assert record.pop("times")["training_seconds"] > 0
    return record


def test_the_same_seed_gives_the_same_record(tiny, store, tmp_path):
    shown = measures.perturbation(0.25, 0.05, shown=1)
    both = replace(tiny, measure=measures.all_of(tiny.measure, shown))
    elsewhere = store._replace(folder=tmp_path / "elsewhere")
    files = []
    for place in (store, elsewhere):
        runs.run(place, "x/y", both, "a", 0)
        files.append(today(place, both, "a"))
    one, other = files
    assert one.name == other.name
    assert without_times(one) == without_times(other)
    with np.load(one.with_suffix(".npz")) as a, np.load(other.with_suffix(".npz")) as b:
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)


def test_what_is_measured_on_a_run(tiny, store):
    measured = replace(
        tiny,
        measure=measures.all_of(
            measures.accuracy(accuracy="test", train="train"),
            measures.test_curve(),
            measures.reconstructions(correct=2, wrong=1),
            measures.perturbation(0.25, 0.05),
            measures.feature_space(),
        ),
        figure=figures.pairs,
    )
    longer = changed(measured, **{"training.epochs": 2, "checkpoints.keep": 10})
    record = runs.run(store, "x/y", longer, "a", 0)
    metrics, series = record["metrics"], record["series"]
    assert len(series["test steps"]) == len(series["test"]) == 2
    assert metrics["accuracy"] in series["test"], "the best checkpoint is one of them"
    assert 0 < metrics["train"] <= 100
    # Two that are right, and one that is wrong as both of its classes.
    one, two, wrong, again = zip(
        series["label"], series["prediction"], series["target"], strict=True
    )
    assert len({*one}) == len({*two}) == 1
    assert wrong[:2] == again[:2]
    assert wrong[0] == again[2] != wrong[1] == wrong[2]
    found = results.gather(store, "x/y", longer)
    loaded = found.records["a"][0]["loaded"]
    assert loaded["images"].shape == loaded["reconstructions"].shape == (4, 8, 8, 1)
    assert metrics["perturbed images"] == 50, "all there are"
    assert 0 < metrics["range of a pixel"] < 1
    assert metrics["inside the unit sphere"] == 100, "squashed"
    assert metrics["nearest is of the class"] == 100, "each class has its own dimensions"
    assert loaded["features"].shape == (50, 2)
    titles = [axes.get_title() for axes in figures.pairs(found).axes]
    assert titles[:2] == [str(one), str(two)]


def test_feature_spaces_are_drawn():
    arrays = {"features": np.eye(3, 2), "reconstructions": np.eye(3, 2), "labels": np.arange(3)}
    records = {"a": [a_record("a", 90.0) | {"loaded": arrays}]}
    drawn = figures.feature_spaces(compare("x/y", an_experiment(), "small", records))
    assert [axes.get_title() for axes in drawn.axes] == ["a: features", "a: reconstructions"]


def test_lines_of_equal_steps_join_the_traces():
    records = {
        name: [a_record(name, 0.0) | {"series": {"x": [x, x + 1], "y": [1, 2], "n": [5, 9]}}]
        for name, x in {"a": 1, "b": 3}.items()
    }
    draw = figures.beside(figures.trace_panel("x", "y", "n", "x", "y"))
    (axes,) = draw(compare("x/y", an_experiment(), "small", records)).axes
    grey = [line.get_xydata().tolist() for line in axes.lines if line.get_linewidth() == 0.8]
    assert grey == [[[1, 1], [3, 1]], [[2, 2], [4, 2]]]


def test_a_lock_is_held_by_one_process_until_it_ends(tmp_path):
    file = tmp_path / "lock"
    code = (
        "import pathlib, sys\n"
        "from capsjax._files import lock as hold\n"
        "with hold(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(file)],
        cwd=Path(reproduce.__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout.readline() == "held\n"
        with hold(file, wait=False) as held:
            assert not held
    finally:
        other.kill()
        other.wait()
    with hold(file) as held:
        assert held


def test_what_another_process_is_at_is_left_to_it(tiny, store):
    seen = []

    def meanwhile(run):
        seen.append(runs.run(store, "x/y", tiny, "a", 0))
        return Measured({"accuracy": 1.0})

    record = runs.run(store, "x/y", replace(tiny, measure=meanwhile), "a", 0)
    assert seen == [None]
    assert runs.run(store, "x/y", tiny, "a", 0) == record


def test_what_other_processes_are_at_is_waited_for_at_the_end(store, monkeypatch):
    calls = []

    def run(store, name, experiment, variant, number, wait):
        calls.append(f"{variant}{number}{' waiting' * wait}")
        return {} if wait or variant == "b" else None

    monkeypatch.setattr(runs, "run", run)
    assert runs.run_all(store, "x/y", an_experiment(), "ab", 2) == []
    assert calls == ["a0", "b0", "a1", "b1", "a0 waiting", "a1 waiting"]


def test_a_run_begins_with_the_layers_of_another(tiny, store):
    plain = dict(tiny.variants["a"].changes)
    frozen = {
        "init_layers": ("conv",),
        "frozen_layers": ("conv",),
        "optimizer.learning_rate": 1e-12,
    }

    def begins_with_another(epochs=1):
        return replace(
            tiny,
            scales={name: Scale("All.", plain | {"training.epochs": epochs}) for name in SCALES},
            variants={
                "first": Variant("sabour2017_mnist"),
                "then": Variant("sabour2017_mnist", frozen, pretrained="sabour2017_mnist"),
            },
        )

    transfer = begins_with_another()
    record = runs.run(store, "x/y", transfer, "then", 0)
    first = recipes.run_config(transfer, "first", "small", 0, {})
    assert record["config"]["init_from"] == f"{recipes.recipe_key(first)}-seed0"
    assert record["config"]["seed"] != first.seed
    # The first training is that of the other variant.
    assert runs.run(store, "x/y", transfer, "first", 0)["config"]["init_from"] == ""
    directories = sorted((store.folder / "runs").iterdir())
    assert len(directories) == 2
    kernels = {
        checkpoint.config.seed: checkpoint.model
        for checkpoint in (checkpoints.read(directory) for directory in directories)
    }
    one, other = kernels.values()
    np.testing.assert_array_equal(one.conv.kernel[...], other.conv.kernel[...])
    # The second training leaves the fresh layers about as they were: another seed's.
    initial = build_model(checkpoints.read(directories[0]).config)
    for model in (one, initial):
        assert np.ptp(model.primary.conv.kernel[...] - other.primary.conv.kernel[...]) > 0.01
    # The folder may move between training and measuring.
    moved = store._replace(folder=store.folder.rename(store.folder.with_name("moved")))
    today(moved, transfer, "then").unlink()
    again = runs.run(moved, "x/y", transfer, "then", 0)
    assert again["metrics"] == record["metrics"]
    # Where it begins counts, with what seed it does not.
    keys = [
        recipes.key_of(recipes.run_config(transfer, "then", "small", seed, {})) for seed in (0, 1)
    ]
    assert keys[0] == keys[1]
    longer = recipes.run_config(begins_with_another(epochs=2), "then", "small", 0, {})
    assert recipes.key_of(longer) != keys[0]


def test_a_training_that_diverges_is_a_result(tiny, store):
    wild = changed(tiny, **{"optimizer.learning_rate": 1e30})
    record = runs.run(store, "x/y", wild, "a", 0)
    assert "at step" in record["failed"]
    assert record["metrics"] == {}
    found = results.gather(store, "x/y", wild)
    assert found.rows["accuracy"]["a"].ours is None
    results.write(found, store.folder / "tables")
    assert record["failed"] in (store.folder / "tables" / "x_y.md").read_text()


def test_a_measurement_that_is_no_number_is_an_error(tiny, store):
    bad = replace(tiny, measure=lambda run: Measured({"accuracy": float("nan")}))
    with pytest.raises(
        ValueError,
        match="x/y, a, run 0: the measurement 'accuracy' gave nan, expected a finite number",
    ):
        runs.run(store, "x/y", bad, "a", 0)
    assert today(store, bad, "a") is None


def test_pages_of_what_was_run(tmp_path):
    about = {
        "commit": "abc",
        "measured_at_commit": "def",
        "device": "1 × cpu",
        "machine": "a processor, 2 cores",
        "config": configs.to_json(configs.default("sabour2017_capsnet", "mnist")),
        "versions": {"jax": "0.10"},
        "times": {"training_seconds": 60.0},
        "failed": None,
    }
    records = {name: [a_record(name, value) | about] for name, value in (("a", 90.0), ("b", 80.0))}
    run = compare("x/y", an_experiment(), "small", records)
    missing = compare("x/z", an_experiment(), "small", {})
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "x.md").write_text("# x\n\nIn short: it holds,\nmostly.\n\nMore.\n")
    files = results.write_all([run, missing], tmp_path / "results")
    assert {file.name for file in files} == {"x_y.md", "index.md"}
    written = (tmp_path / "results" / "index.md").read_text()
    results.write_all([run._replace(records={}), missing], tmp_path / "results")
    index = (tmp_path / "results" / "index.md").read_text()
    assert index == written, "what was not run here keeps its line"
    assert "[x/y](x_y.md)" in index
    assert "| x/z |" in index
    assert "not run" in index.split("x/z")[1]
    page = (tmp_path / "results" / "x_y.md").read_text()
    assert page == tables.page(run)
    assert "- Commit: abc (measured at def)\n- Device: 1 × cpu (a processor, 2 cores)\n" in page
    key = recipes.recipe_key(configs.default("sabour2017_capsnet", "mnist"))
    assert f"- Recipes: `{key}` a; `{key}` b\n- Not run: c\n" in page
    assert "1 of 2 were run." in index
    assert "| paper | names run | holds (by sign alone) | not run |" in index
    assert "| x | 1 of 2 | 1 | 1 |" in index
    assert "\n- [x](../papers/x.md): it holds, mostly.\n" in index


def test_pages_by_command_line(fails, store, tmp_path):
    import report

    pages = tmp_path / "pages"
    store.remember()
    report.main(report.parser().parse_args([f"--results={tmp_path}", f"--pages={pages}"]))
    assert "gu2021/table1" in (pages / "index.md").read_text()
    store._replace(folder=tmp_path / "smoke", scale="smoke").remember()
    two = fails(report, f"--results={tmp_path}", f"--pages={pages}")
    assert "holds small, smoke" in two
    assert "--pages goes with --results" in fails(report, "somewhere", f"--pages={pages}")


def test_the_list_in_a_narrow_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reproduce._cli, "WIDEST_TABLE", 80)
    reproduce.main(reproduce.parser().parse_args(["--list", f"--workdir={tmp_path}"]))
    said = capsys.readouterr().out
    assert re.search(r"tsai2020/figure4 +│ cifar10 +│ not run: 13", said)
    assert "…" not in said
    assert "gets more: what, runs, full, h, tested." in said


# What a user gets wrong


def test_unknown_names(fails, tmp_path):
    workdir = f"--workdir={tmp_path / 'w'}"
    wrong = fails(reproduce, "gu2021/tabel2", workdir)
    assert "did you mean 'gu2021/table2'" in wrong
    assert wrong.startswith("2\n")
    message = fails(reproduce, "gu2021/table2", "--only", "no sqash", "--scale=smoke", workdir)
    assert "did you mean 'no squash'" in message
    message = fails(
        reproduce, "gu2021/table2", "--only", "dynamic routing", "--scale=smoke", workdir
    )
    assert "unknown row of gu2021/table2 at scale smoke 'dynamic routing'" in message
    assert "--list shows" in fails(reproduce, workdir)
    assert "at least 1" in fails(reproduce, "gu2021/table2", "--seeds=0", workdir)
    assert not (tmp_path / "w").exists()


def test_rows_whose_data_are_missing_are_left_out_and_named(fails, tmp_path):
    nowhere = f"cifar10=npz:{tmp_path / 'none.npz'}"
    options = ("--scale=small", f"--workdir={tmp_path / 'w'}", "--use", nowhere)
    message = fails(reproduce, "choi2019/table2", *options)
    assert message.count("none.npz") == len(registry.EXPERIMENTS["choi2019/table2"].at("small"))
    assert "choi2019/table2, 4 conv-caps of 32, augmented" in message
    assert not (tmp_path / "w" / "small" / "tables").exists()


def test_a_stand_in_for_nothing(fails, tmp_path):
    use = ("choi2019/table2", f"--workdir={tmp_path / 'w'}", "--use")
    assert "did you mean 'cifar10'" in fails(reproduce, *use, "cifar-10=digits")
    assert "--use takes NAME=OTHER, got cifar10" in fails(reproduce, *use, "cifar10")
    assert not (tmp_path / "w").exists()


def test_stand_ins_are_remembered_and_results_of_others_are_kept_apart(tiny, npz, store):
    source = f"npz:{npz}"
    from_mnist = changed(tiny, **{"data.name": "mnist"})
    used = store._replace(use={"mnist": source})
    used.remember()
    assert store.with_earlier() == used
    store.remember()  # by a process that began before there were any
    assert store.with_earlier() == used
    runs.run(used, "x/y", from_mnist, "a", 0)
    assert results.gather(store.with_earlier(), "x/y", from_mnist).rows["accuracy"]["a"].ours
    other = store._replace(use={"mnist": "digits"}).with_earlier()
    (line,) = results.gather(other, "x/y", from_mnist).left
    assert f"data.name: {source!r} → 'digits'" in line


# As a user runs it


def test_the_rows_and_seeds_that_are_asked_for(monkeypatch, tmp_path):
    asked = []

    def run_all(store, name, experiment, variants, seeds):
        asked.append((store.scale, name, variants, seeds))
        return []

    monkeypatch.setattr(runs, "run_all", run_all)
    rows = ("--only", "CapsNet", "ConvNet-Avg", "--seeds=2")
    arguments = ["gu2021/table1", *rows, "--scale=smoke", f"--workdir={tmp_path}"]
    reproduce.main(reproduce.parser().parse_args(arguments))
    assert asked == [("smoke", "gu2021/table1", ["CapsNet", "ConvNet-Avg"], 2)]
    assert not (tmp_path / "smoke" / "tables").exists(), "there is nothing to show"


def test_a_name_at_smoke_scale(script, tmp_path):
    import report

    name = "sabour2017_perturbation"
    done = script(
        "reproduce.py", "sabour2017/perturbation", "--scale=smoke", f"--workdir={tmp_path}"
    )
    assert done.returncode == 0, done.stderr
    assert "proves the path only" in done.stdout
    tables = tmp_path / "smoke" / "tables"
    assert {path.name for path in tables.iterdir()} == {f"{name}.{k}" for k in ("md", "png", "svg")}

    report.main(report.parser().parse_args([f"--results={tmp_path}"]))
    html = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert {s["id"] for s in html.all("section")} == {"index", f"{name}_smoke"}
    assert not html.all("script")
    assert all(image["src"].startswith("data:") for image in html.all("img"))
    assert all(name in html.text for name in registry.EXPERIMENTS)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{len(registry.EXPERIMENTS) - 1} names were not run</summary>" in text
    assert '<p class="smoke"><strong>This run proves the path only.' in text


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Names share trainings in one work directory."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.EXPERIMENTS)
def test_every_name_at_smoke_scale(script, shared, name):
    done = script("reproduce.py", name, "--scale=smoke", f"--workdir={shared}")
    assert done.returncode == 0, done.stdout + done.stderr
    experiment = registry.EXPERIMENTS[name]
    store = runs.Store(shared / "smoke", "smoke", {}, None)
    comparison = results.gather(store, name, experiment)
    for variant in experiment.at("smoke"):
        assert comparison.records[variant], variant
        assert comparison.records[variant][0]["failed"] is None
        for column in experiment.columns:
            if not column.deviation_of:  # over variants that smoke leaves out
                assert comparison.rows[column.metric][variant].ours is not None
