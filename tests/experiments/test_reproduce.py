"""Tables and figures by name: rows, runs and records, what a user gets wrong, a name run."""

import json
import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import report
import reproduce
from _reproduce import figures, measures, results, runs
from _reproduce.experiment import ENTROPY, SCALES, Column, Estimate, Measured, Row, Scale
from flax import nnx
from papers import EXPERIMENTS, PAPERS

from capsjax import models
from capsjax.runs import checkpoints
from capsjax.training import config as configs
from capsjax.training.build import build_model
from tests.experiments.test_compare import an_experiment
from tests.experiments.test_configs import sizes
from tests.processes import ROOT


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_are_about_what_is_measured_on_known_rows(name):
    experiment = EXPERIMENTS[name]
    rows = {row.name: row for row in experiment.rows}
    assert len(rows) == len(experiment.rows)
    paper = name.partition("/")[0]  # a row may be in several tables
    shown = {c.metric for n, e in EXPERIMENTS.items() if n.startswith(paper) for c in e.columns}
    assert all(row.printed.keys() <= shown for row in rows.values())
    lines = {row.line for row in experiment.rows}
    for claim in experiment.claims:
        less = claim.less if isinstance(claim.less, tuple) else (claim.less,)
        known = lines if experiment.column(claim.metric).printed else rows
        assert {side for side in (claim.more, *less) if isinstance(side, str)} <= {*known}
        assert not claim.routes or claim.routes in rows
    texts = [claim.text for claim in experiment.claims]
    assert len({*texts, *experiment.untested}) == len(texts) + len(experiment.untested)
    assert all(experiment.untested.values()), "a reason each"
    for scale, own in experiment.scales.items():
        assert scale in SCALES
        assert set(own.only) <= rows.keys()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_network_without_a_floor_decides_nothing_about_accuracy(name):
    experiment = EXPERIMENTS[name]
    sides = [side for claim in experiment.claims for side in (claim.more, claim.less)]
    compared = {name for side in sides for name in (side if isinstance(side, tuple) else [side])}
    for row in experiment.rows:
        decides = row.name in compared
        transferred = row.pretrained  # judged by the floor of the network that it begins with
        if decides and row.network == "trained" and not transferred:
            floor = row.floor or experiment.floor
            looks = name in ("sabour2017/perturbation", "sabour2017/reconstructions")
            assert looks or (floor and floor.metric in {c.metric for c in experiment.columns})


@pytest.mark.slow
def test_every_network_of_full_scale_can_be_built():
    built = set()
    for experiment in EXPERIMENTS.values():
        for row in experiment.at("full").values():
            config = runs.trainings(experiment, row, "full", 0, {})[-1]
            shape, classes = sizes(config.data.name)
            if (key := (config.model.to_json(), shape)) not in built:
                built.add(key)
                make = partial(
                    models.create, **config.model, input_shape=shape, num_classes=classes
                )
                nnx.eval_shape(lambda make=make: make(rngs=nnx.Rngs(0)))


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
    return an_experiment(rows=(Row("a", "sabour2017_mnist", changes),), claims=())


def changed(experiment, **changes):
    """With other values in its first row."""
    row = experiment.rows[0]
    return replace(experiment, rows=(replace(row, changes=dict(row.changes) | changes),))


@pytest.fixture
def store(tmp_path):
    return runs.Store(tmp_path / "small", "small", {}, None)


def run(store, experiment, number=0, row=0):
    return runs.run(store, "x/y", experiment, experiment.rows[row], number)


def test_an_interrupted_run_is_resumed_and_a_finished_one_is_not_repeated(tiny, store, capsys):
    def stops(run):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store, replace(tiny, measure=stops))
    assert "epoch   1" in capsys.readouterr().out
    seen = []

    def meanwhile(finished):  # another process leaves it to this one
        seen.append(run(store, tiny))
        return tiny.measure(finished)

    record = run(store, replace(tiny, measure=meanwhile))
    assert seen == [None]
    assert "images to train on" not in capsys.readouterr().out, "it is finished"
    assert record["times"]["training_seconds"] > 0
    assert 0 < record["metrics"][ENTROPY] <= 100.1
    assert run(store, replace(tiny, measure=stops)) == record
    gathered = results.gather(store, "x/y", tiny)
    assert gathered.cells["accuracy"]["a"].ours == Estimate(record["metrics"]["accuracy"])
    # Of other images, or without a number that the table shows: it is measured again, not trained.
    more = replace(tiny, scales=tiny.scales | {"small": Scale("More.", images=20)})
    assert (more.seeds("small"), more.seeds("smoke")) == (3, 1)
    assert (record["images"], run(store, more)["images"]) == (10_000, 20)
    both = measures.accuracy(accuracy="test", train="train")
    two = replace(more, columns=(*more.columns, Column("train", "Training")), measure=both)
    assert "train" in run(store, two)["metrics"]
    assert "images to train on" not in capsys.readouterr().out


def test_records_and_trainings_of_before_an_option(tiny, store, capsys):
    record = run(store, tiny)
    (file,) = (store.folder / "results").rglob("*.json")
    (directory,) = (store.folder / "runs").iterdir()
    old = directory.rename(directory.with_name(directory.name.replace("-", "-0", 1)))
    for path, part in ((file, "config"), (old / "time.json", "config"), (old / "config.json", "")):
        made = runs.read_json(path)
        del (made[part] if part else made)["model"]["primary_relu"]
        runs.write_json(path, made)
    # At its default it makes no difference.
    assert not results.gather(store, "x/y", tiny).left
    more = replace(tiny, scales=tiny.scales | {"small": Scale("More.", images=20)})
    capsys.readouterr()
    again = run(store, more)
    assert again["metrics"]["accuracy"] == record["metrics"]["accuracy"]
    assert again["images"] == 20
    assert "images to train on" not in capsys.readouterr().out
    relu = results.gather(store, "x/y", changed(tiny, **{"model.primary_relu": True}))
    assert "(model.primary_relu: the default → True)" in relu.left[0]
    longer = results.gather(store, "x/y", changed(tiny, **{"training.epochs": 2}))
    assert longer.cells["accuracy"]["a"].ours is None
    assert re.fullmatch(
        r"a, run 0 \(.*accuracy [\d.]+\): made with an older recipe \(training.epochs: 1 → 2\)",
        longer.left[0],
    )
    assert "Kept apart" in results.markdown("x/y", results.blocks([longer]))


def test_controls(tiny, store):
    """Untrained networks have three seeds and nothing is trained; pixels have none."""
    row = tiny.rows[0]
    rows = (replace(row, network="untrained"), replace(row, name="pixels", network="pixels"))
    measure = measures.all_of(measures.alignment, measures.accuracy(accuracy="test"))
    control = replace(tiny, rows=rows, measure=measure)
    assert runs.run_all(store, "x/y", control, rows, None) == []
    found = results.gather(store, "x/y", control)
    assert [len(own) for own in found.records.values()] == [3, 1]
    assert not (store.folder / "runs").exists()
    untrained, pixels = (own[0]["metrics"] for own in found.records.values())
    assert untrained["accuracy"] < 60
    assert "accuracy" not in pixels
    assert 0.5 < pixels["rotation+"] <= 1
    assert pixels.keys() > {"mean, digit 8", "x: cos < -0.8"}


def test_the_same_seed_gives_the_same_record(tiny, store, tmp_path):
    shown = measures.perturbation(0.25, 0.05, shown=1)
    both = replace(tiny, measure=measures.all_of(tiny.measure, shown))
    files = []
    for place in (store, store._replace(folder=tmp_path / "elsewhere")):
        run(place, both)
        files += (place.folder / "results").rglob("*.json")
    one, other = (json.loads(file.read_text()) for file in files)
    assert one.pop("times").keys() == other.pop("times").keys()
    assert one == other
    with np.load(files[0].with_suffix(".npz")) as a, np.load(files[1].with_suffix(".npz")) as b:
        assert all(np.array_equal(a[name], b[name]) for name in a.files)


def test_what_is_measured_on_a_run(tiny, store):
    measured = replace(
        tiny,
        measure=measures.all_of(
            measures.accuracy(accuracy="test", train="train"),
            measures.test_curve,
            measures.reconstructions(correct=2, wrong=1),
            measures.perturbation(0.25, 0.05),
            measures.feature_space,
        ),
        figure=figures.pairs,
    )
    longer = changed(measured, **{"training.epochs": 2, "checkpoints.keep": 10})
    record = run(store, longer)
    metrics, series = record["metrics"], record["series"]
    assert len(series["test steps"]) == len(series["test"]) == 2
    assert metrics["accuracy"] in series["test"], "the best checkpoint is one of them"
    assert 0 < metrics["train"] <= 100
    assert metrics["perturbed images"] == 50, "all there are"
    assert 0 < metrics["range of a pixel"] < 1
    # Two that are right, and one that is wrong as both of its classes.
    one, two, *wrong = zip(series["label"], series["prediction"], series["target"], strict=True)
    assert len({*one}) == len({*two}) == 1
    assert wrong[0][2] == wrong[0][1] != wrong[1][2] == wrong[1][0]
    assert metrics["inside the unit sphere"] == 100, "squashed"
    assert metrics["nearest is of the class"] == 100, "each class has its own dimensions"
    found = results.gather(store, "x/y", longer)
    loaded = found.records["a"][0]["loaded"]
    assert loaded["images"].shape == loaded["reconstructions"].shape == (4, 8, 8, 1)
    assert loaded["features"].shape == (50, 2)
    titles = [axes.get_title() for axes in figures.pairs(found).axes]
    assert titles[:2] == [str(one), str(two)]
    plane = {"features": np.eye(3, 2), "reconstructions": np.eye(3, 2), "labels": np.arange(3)}
    found.records["a"][0]["loaded"] = plane
    drawn = figures.feature_spaces(found)
    assert [axes.get_title() for axes in drawn.axes] == ["a: features", "a: reconstructions"]


def test_a_run_begins_with_the_layers_of_another(tiny, store):
    plain = dict(tiny.rows[0].changes)
    frozen = {
        "init_layers": ("conv",),
        "frozen_layers": ("conv",),
        "optimizer.learning_rate": 1e-12,
    }
    transfer = replace(
        tiny,
        scales={"small": Scale("All.", plain)},
        rows=(
            Row("first", "sabour2017_mnist"),
            Row("then", "sabour2017_mnist", frozen, pretrained="sabour2017_mnist"),
        ),
    )
    record = run(store, transfer, row=1)
    (first,) = runs.trainings(transfer, transfer.rows[0], "small", 0, {})
    assert record["config"]["init_from"] == f"{runs.key_of(configs.to_json(first))}-seed0"
    # The first training is that of the other row.
    assert run(store, transfer)["config"]["init_from"] == ""
    directories = sorted((store.folder / "runs").iterdir())
    assert len(directories) == 2
    one, other = (checkpoints.read(directory).model for directory in directories)
    np.testing.assert_array_equal(one.conv.kernel[...], other.conv.kernel[...])
    # The second training leaves the fresh layers about as they were: another seed's.
    initial = build_model(checkpoints.read(directories[0]).config)
    assert np.ptp(initial.primary.conv.kernel[...] - other.primary.conv.kernel[...]) > 0.01


def test_a_training_that_diverges_is_a_result(tiny, store):
    wild = changed(tiny, **{"optimizer.learning_rate": 1e30})
    record = run(store, wild)
    assert "at step" in record["failed"]
    assert record["metrics"] == {}
    results.write([results.gather(store, "x/y", wild)], store.folder / "tables")
    assert record["failed"] in (store.folder / "tables" / "x_y.md").read_text()


def test_a_measurement_that_is_not_a_number_is_an_error(tiny, store):
    bad = replace(tiny, measure=lambda run: Measured({"accuracy": math.nan}))
    with pytest.raises(ValueError, match=r"x/y, a, run 0: not finite: .'accuracy'"):
        run(store, bad)
    assert not list((store.folder / "results").rglob("*.json"))


def test_stand_ins_are_remembered_and_results_of_others_are_kept_apart(tiny, npz, store):
    source = f"npz:{npz}"
    from_mnist = changed(tiny, **{"data.name": "mnist"})
    used = store._replace(use={"mnist": source})
    used.remember()
    store.remember()  # by a process that began before there were any
    assert store.with_earlier() == used
    run(used, from_mnist)
    other = store._replace(use={"mnist": "digits"}).with_earlier()
    (line,) = results.gather(other, "x/y", from_mnist).left
    assert f"data.name: {source!r} → 'digits'" in line


# What is committed, and the command line


def test_the_pages_are_those_of_the_records(tmp_path):
    """The Markdown alone: pictures differ with the version of Matplotlib."""
    names = results.gather_all(results.folders(ROOT / "docs/results/records"), EXPERIMENTS)
    assert not any(one.left for n, found in names.items() for one in found if n.startswith("choi"))
    for name, found in names.items():
        page = ROOT / "docs/results" / f"{found[0].stem}.md"
        assert page.read_text() == results.markdown(name, results.blocks(found)), name
        assert page.with_suffix(".png").exists() == (results.pictured(found) is not None)
    findings = {name: paper.FINDING for name, paper in PAPERS.items()}
    assert (ROOT / "docs/results/index.md").read_text() == results.index(names, findings)
    assert "../papers" not in results.index(names, dict.fromkeys(findings, ""))


def test_our_findings_do_not_stand_on_the_pages_of_others(tmp_path):
    """Even beside a folder of papers."""
    (tmp_path / "work" / "small").mkdir(parents=True)
    (tmp_path / "work" / "small" / "about.json").write_text('{"scale": "small", "data": {}}')
    (tmp_path / "papers").mkdir()
    report.of_results(tmp_path / "work", tmp_path / "pages")
    index = (tmp_path / "pages" / "index.md").read_text()
    assert "| gu2021 |" in index
    assert PAPERS["gu2021"].FINDING not in index
    (tmp_path / "papers" / "gu2021.md").touch()
    report.of_results(tmp_path / "work", tmp_path / "pages")
    assert PAPERS["gu2021"].FINDING in (tmp_path / "pages" / "index.md").read_text()


def test_rows_whose_data_are_missing_are_left_out_and_named(fails, tmp_path):
    nowhere = f"cifar10=npz:{tmp_path / 'none.npz'}"
    options = ("--scale=small", f"--workdir={tmp_path / 'w'}", "--use", nowhere)
    message = fails(reproduce, "choi2019/table2", *options)
    assert message.count("none.npz") == len(EXPERIMENTS["choi2019/table2"].at("small"))
    assert "choi2019/table2, 4 conv-caps of 32, augmented" in message


def test_the_list(tmp_path, capsys):
    reproduce.main(reproduce.parser().parse_args(["--list", f"--workdir={tmp_path}"]))
    assert re.search(r"tsai2020/figure4 +│ cifar10 +│ not run: 13", capsys.readouterr().out)


def test_a_name_at_smoke_scale(script, tmp_path):
    import report

    done = script(
        "reproduce.py", "sabour2017/reconstructions", "--scale=smoke", f"--workdir={tmp_path}"
    )
    assert done.returncode == 0, done.stderr
    assert "proves the path only" in done.stdout
    name = "sabour2017_reconstructions"
    made = {path.name for path in (tmp_path / "smoke" / "tables").iterdir()}
    assert made == {f"{name}.{kind}" for kind in ("md", "png")}
    report.main(report.parser().parse_args([f"--results={tmp_path}"]))
    pages = tmp_path / "pages"
    assert "1 of 25 tables and figures were run" in (pages / "index.md").read_text()
    assert f"]({name}.png)" in (pages / f"{name}.md").read_text()
    assert results.NO_RECORDS in (pages / "gu2021_table1.md").read_text()


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Names share trainings in one work directory."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_name_at_smoke_scale(script, shared, name):
    done = script("reproduce.py", name, "--scale=smoke", f"--workdir={shared}")
    assert done.returncode == 0, done.stdout + done.stderr
    store = runs.Store(shared / "smoke", "smoke", {}, None)
    comparison = results.gather(store, name, EXPERIMENTS[name])
    for row in EXPERIMENTS[name].at("smoke").values():
        assert comparison.records[row.name], row.name
        assert comparison.records[row.name][0]["failed"] is None
        for column in EXPERIMENTS[name].columns:
            if column.derive is None and row.network == "trained":
                assert comparison.cells[column.metric][row.name].ours is not None
