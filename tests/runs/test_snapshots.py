import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from capsjax import models
from capsjax.data import tasks
from capsjax.routing import Routed
from capsjax.runs import loop, snapshots
from capsjax.training.state import TrainState, split
from tests.models.building import apply, build
from tests.tiny import tiny_config

ONE = jax.devices()[:1]


def snapshot(task, name, **options):
    model = build(name, task.input_shape, task.num_classes, **options)
    model.eval()
    graphdef, params, rest = split(model)
    return snapshots.taker(graphdef, task)(TrainState(0, params, rest, ())), model


CAPSNET = {"kernel_size": 3, "width": 1 / 32}


@pytest.mark.parametrize("budget", [None, 0.001], ids=["resident", "stored"])
def test_inputs_beside_reconstructions(npz, budget):
    task = tasks.create(f"npz:{npz}", device_budget_mb=budget)
    taken, model = snapshot(task, "sabour2017_capsnet", **CAPSNET)
    picture = taken.pictures["inputs_and_reconstructions"]
    assert picture.shape == (16, 8 * 8, 1)
    assert picture.dtype == np.uint8
    whole = tasks.create(f"npz:{npz}").validation
    batch = whole.examples(np.arange(8))
    reconstruction = apply(model, batch.image, batch.label).reconstruction
    for i in range(8):
        there = picture[:, 8 * i : 8 * i + 8] / 255
        np.testing.assert_allclose(there[:8], batch.image[i], atol=0.5 / 255)
        np.testing.assert_allclose(there[8:], reconstruction[i], atol=0.5 / 255 + 1e-5)


def test_every_object_has_its_reconstruction(npz):
    options = {"validation_fraction": 0.0}  # training images are shown
    task = tasks.create("multimnist", source=f"npz:{npz}", canvas=12, max_shift=2, **options)
    taken, _ = snapshot(task, "sabour2017_capsnet", **CAPSNET)
    assert taken.pictures["inputs_and_reconstructions"].shape == (3 * 12, 8 * 12, 1)


@pytest.mark.parametrize("axis", [-1, -2], ids=["children are divided", "parents are divided"])
def test_entropy_of_what_is_divided(axis):
    """Each of 6 children over 3 parents, or each parent over its children (attention routing)."""
    logits = jnp.zeros((2, 5, 6, 3)).at[0].set(100 * jnp.eye(6, 3))
    coupling = jax.nn.softmax(logits, axis=axis)
    output = models.Output(jnp.zeros((2, 10)), routed={"layer": Routed(None, coupling)})
    num = coupling.shape[axis]
    # In half of it all are divided evenly; in the other half, the last three children alone.
    expected = np.log(num) * {-1: (1 + 0.5) / 2, -2: 0.5}[axis]
    assert float(snapshots._entropies(output)["layer"]) == pytest.approx(expected, abs=1e-5)


def test_looking_changes_nothing(npz, tmp_path, tiny_run):
    loop.train(
        tiny_config(npz),
        tmp_path / "run",
        devices=ONE,
        monitoring=loop.Monitoring(snapshot_every=2),
    )
    ours, theirs = (d / "metrics.jsonl" for d in (tmp_path / "run", tiny_run))
    assert ours.read_text() == theirs.read_text()
    assert [tag for tag in events(tiny_run) if "/" not in tag or "entropy" in tag] == []
    written = events(tmp_path / "run")
    ((step, value),) = written["inputs_and_reconstructions"]
    assert (step, value.image.width, value.image.height) == (14, 64, 16)
    ((step, value),) = written["coupling_entropy/classes"]
    assert step == 14
    assert 0 < value.simple_value <= np.float32(np.log(10))


def events(directory):
    """By tag, the steps and values in the event file of a run."""
    (file,) = (directory / "events").iterdir()
    contents, found = file.read_bytes(), {}
    while contents:  # each record: its length, a checksum, an event, another checksum
        (length,) = struct.unpack("<Q", contents[:8])
        event = Event.FromString(contents[12 : 12 + length])
        contents = contents[16 + length :]
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value))
    return found
