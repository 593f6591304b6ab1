"""What a user gets wrong is one message, whatever the script, and leaves nothing behind."""

import importlib
import shlex

import pytest

from tests.processes import ROOT

TRAIN = f"train --config={ROOT}/configs/digits.py --workdir=run --config."
MISTAKES = [
    ("benchmark models --names=foo", "unknown model 'foo'"),
    ("benchmark models --batch_size=0", "--batch_size must be at least 1, got 0"),
    ("benchmark routing --repeats=0", "--repeats must be at least 1"),
    ("predict --checkpoint={run}", "error: nothing to do"),
    ("predict --checkpoint={run} x.png --output=x.txt", "must end in .json, .csv, .html"),
    ("evaluate --checkpoint={run} --output=folder/", "--output: must end in .json; got folder/"),
    ("evaluate --checkpoint {run} {run}", "a run is named twice"),
    ("evaluate --checkpoint=none.safetensors", "none.safetensors does not exist"),
    ("predict --checkpoint={run} --export=x --output=x.json", "--output goes with images"),
    ("predict --checkpoint={run} x.png --margin=0.1", "--margin goes with --crop"),
    ("predict --checkpoint={run} x.png --crop --invert", "leave --invert out"),
    (f"{TRAIN}training.batch-size=8", "no option 'training.batch-size': did you mean"),
    ("predict --checkpoint={run} missing.png", "missing.png: no such file"),
    ("predict --checkpoint={run} ~nobody_here/a.png", "~nobody_here/a.png: no such file"),
    (f"predict --checkpoint={{run}} {__file__}", "not an image"),
    ("predict --checkpoint={run} --export=/dev/null/net", "'/dev/null'"),
    ("evaluate --checkpoint={run} --which=newest", 'must be "best", "latest", "mean" or a step'),
    ("evaluate --checkpoint={run} --dataset=digits", "images of 28×28×1, this network takes 8×8×1"),
    ("evaluate --checkpoint={run} --split=tset", "no split 'tset'"),
    ("evaluate --checkpoint={run} --which=9999", "there is no step 9999"),
    ("evaluate --checkpoint={run} --batch_size=100", "multiple of the number of devices, 8"),
    ("evaluate --checkpoint={run} --output=/dev/null/x.json", "'/dev/null'"),
    ("evaluate --checkpoint=none", "does not exist"),
    ("evaluate --checkpoint=.", "has no checkpoints"),
    ("data multimnist --out=x.png --option=canvs=3", "did you mean 'canvas'"),
    ("data multimnist --out=x.png --option=canvas=big", "canvas must be an integer, got 'big'"),
    ("data digits --export=x.png", "--export: must end in .npz"),
    ("data multimnits", "unknown dataset 'multimnits'"),
    ("data digits --export=x.npz --count=0", "count must be at least 1"),
    ("data digits --out=x.png --set=tset", "'tset': did you mean 'test'"),
    (
        "data digits --out=x.png --set=validation --option=validation_fraction=0",
        "the set 'validation' is empty",
    ),
    ("models sabour2017_capsnet --input=16x16x1", "smallest is 17×17"),
    ("models sabour2017_capsnet --classes=1", "num_classes must be at least 2"),
    ("models --input=28x28", "argument --input: invalid size value: '28x28'"),
    ("report a b --poses=x.png", "--poses goes with one run's directory"),
    ("report a --poses=x.png --output=x.html", "leave --output out"),
    ("report somewhere --pages=pages", "--pages goes with --results"),
    ("report --results=somewhere --output=x.html", "--output goes with runs"),
    ("release --checkpoint={run} --output=a.bin", "must end in .safetensors"),
    ("reproduce", "--list shows"),
    ("reproduce gu2021/tabel2", "did you mean 'gu2021/table2'"),
    ("reproduce gu2021/figure5 --scale=small", "has no scale small: use one of full, smoke"),
    ("reproduce gu2021/table2 --seeds=0", "at least 1"),
    ("reproduce gu2021/table2 --workdir=gs://bucket/w", "is an address; name a folder"),
    (
        "reproduce gu2021/table2 --scale=smoke --only 'dynamic routing'",
        "unknown row of gu2021/table2 at scale smoke 'dynamic routing'",
    ),
    ("reproduce gu2021/table2 --use cifar-10=digits", "did you mean 'cifar10'"),
    ("reproduce gu2021/table2 --use cifar10", "--use takes NAME=OTHER, got cifar10"),
    ("compile --target=h100", "--target and either --config or --routing must be given"),
    ("compile --routing=em --target=cpu --chips=0", "--chips: cpu has 1 to"),
    (f"{TRAIN}data.name=mnits", "unknown dataset 'mnits'"),
    (f"{TRAIN}data.name=folder:", "'folder:' has no path: write folder:PATH"),
]


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_mistakes_are_one_message(fails, tiny_run, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    script, *words = shlex.split(command.format(run=tiny_run))
    said = fails(importlib.import_module(script), *words)
    assert message in said
    assert "\\" not in said
    assert not list(tmp_path.iterdir())
