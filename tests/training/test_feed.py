"""Images fed from the host give the same examples as images on the device."""

import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.data import tasks
from capsjax.data.lazy_images import LazyImages, within
from capsjax.evaluation.scoring import score
from capsjax.training import feed
from capsjax.training.parallel import on_devices, replicate
from capsjax.training.state import TrainState
from capsjax.training.step import Batches, DeviceSource, run_steps
from tests.models.building import build

KEY = jax.random.key(3)


def create(name, npz, budget):
    if name == "classification":
        return tasks.create(f"npz:{npz}", max_shift=1, device_budget_mb=budget)
    options = {"versions": 3} if name == "multimnist" else {}
    return tasks.create(
        name, source=f"npz:{npz}", canvas=12, max_shift=2, device_budget_mb=budget, **options
    )


def batches_of(task, num_devices, steps):
    """The images and labels of the global batches of a run's steps, and their models' keys."""
    devices = jax.devices()[:num_devices]
    batches = Batches(len(task.train.labels), 40, num_devices, task.versions)

    def update(state, batch, keys):
        everywhere = jax.lax.all_gather((batch.image, batch.label, keys), "devices", tiled=True)
        image, label, keys = everywhere
        record = {"image": image, "label": label, "bits": jax.vmap(jax.random.bits)(keys)}
        return state._replace(step=state.step + 1), record

    program = partial(run_steps, task=task, batches=batches, update=update, capacity=1)
    images = 0 if feed.is_streamed(task) else None
    run = on_devices(program, devices, (None, DeviceSource(None, images, None), None, None))
    state = replicate(TrainState(jnp.int32(steps.start), (), (), ()), devices)
    key = replicate(KEY, devices)
    made = []
    with feed.source_images(task, batches, KEY, devices, steps.start, steps.stop) as source_at:
        for step in steps:
            source, end = source_at(step)
            assert end > step
            state, record = run(state, source, key, np.int32(1))
            made.append(jax.tree.map(np.asarray, record))
    return made


@pytest.mark.parametrize(("name", "num_devices"), [("classification", 4), ("multimnist", 1)])
def test_the_same_examples_from_host_and_device(name, num_devices, npz, monkeypatch):
    monkeypatch.setattr(feed, "CHUNK_STEPS", 3)  # 180 images, four steps an epoch
    expected = batches_of(create(name, npz, None), num_devices, range(8))
    fed_task = create(name, npz, 0.001)
    assert isinstance(fed_task.train.images, LazyImages)
    found = batches_of(fed_task, num_devices, range(8))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    # A stream that begins in the middle of a chunk and of an epoch.
    resumed = batches_of(fed_task, num_devices, range(5, 8))
    jax.tree.map(np.testing.assert_array_equal, resumed, expected[5:])


@pytest.mark.parametrize(
    ("name", "test", "num_devices"),
    [
        ("affnist_generated", "test", 4),  # its draws look at the image
        ("multimnist", "shift_grid", 1),
    ],
)
def test_the_same_scores_of_lazy_images(name, test, num_devices, npz):
    task = create(name, npz, None)
    model = build("gu2021_convnet_avg", task.input_shape, 10, width=1 / 32, kernel_size=3)
    model.eval()

    def scores(task):
        examples = task.evaluation_set(test)
        part = replace(examples, size=min(50, len(examples)))
        return score(model, part, batch_size=12, devices=jax.devices()[:num_devices])

    np.testing.assert_array_equal(scores(create(name, npz, 0)), scores(task))
    labels = [create(name, npz, budget).evaluation_set(test).labels() for budget in (None, 0)]
    np.testing.assert_array_equal(*labels)


def test_sheets_and_exports_of_stored_images(npz):
    rendered = [
        tasks.render(create("multimnist", npz, budget).evaluation_set("test"), np.arange(5))
        for budget in (None, 0)
    ]
    jax.tree.map(np.testing.assert_array_equal, *rendered)


def test_a_process_reads_its_own_share(npz, monkeypatch):
    """Two processes with two devices each."""
    devices = [SimpleNamespace(process_index=n // 2) for n in range(4)]
    batches = Batches(180, 40, 4)
    assert feed._slots(batches, devices).tolist() == list(range(20))
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    assert feed._slots(batches, devices).tolist() == list(range(20, 40))


def source_images(task):
    """The source images of eight steps on one device."""
    return feed.source_images(task, Batches(180, 40, 1), KEY, jax.devices()[:1], 0, 8)


def lazy_task(npz, read):
    """A task whose images come from `read`."""
    task = create("classification", npz, None)
    images = LazyImages(partial(read, task.train.images), (8, 8, 1), np.arange(180))
    return tasks.Task(
        "read", task.class_names, task.train._replace(images=images), task.recipe, task.validation,
        task.rule,
    )  # fmt: skip


def test_the_next_chunk_is_read_before_it_is_asked_for(npz, monkeypatch):
    monkeypatch.setattr(feed, "CHUNK_STEPS", 1)
    reads, third = [], threading.Event()

    def read(images, places):
        reads.append(set(places.tolist()))
        if len(reads) > 2:
            third.set()
        return images[places]

    with source_images(lazy_task(npz, read)) as source_at:
        source_at(0)
        assert third.wait(timeout=60)
    for thread in threading.enumerate():
        if "grain" in thread.name:
            thread.join(timeout=60)
            assert not thread.is_alive()


def test_a_file_that_cannot_be_read_is_an_error_of_the_step(npz):
    def read(images, places):
        if 7 in places:
            raise ValueError("image 7 is damaged")
        return images[places]

    with (
        pytest.raises(ValueError, match="image 7 is damaged"),
        source_images(lazy_task(npz, read)) as source_at,
    ):
        source_at(0)


def test_the_budget():
    images = np.zeros((4, 512, 512, 1), np.uint8)  # 1 MB
    assert within(images, None) is images
    assert within(images, 1) is images
    stored = within(images, 0.99)
    assert isinstance(stored, LazyImages)
    assert stored.shape == images.shape
    assert within(stored, 2000) is stored


def test_stored_images_are_read_by_index():
    images = np.arange(5, dtype=np.uint8).repeat(4).reshape(5, 2, 2, 1)
    stored = within(images, 0).select(np.array([4, 2, 0]))
    assert len(stored) == 3
    assert stored.nbytes == 12
    np.testing.assert_array_equal(stored[np.array([[0, 1], [2, 0]])], images[[[4, 2], [0, 4]]])
    np.testing.assert_array_equal(stored[1:], images[[2, 0]])
