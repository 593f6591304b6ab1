from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.data.accuracy import top
from capsjax.data.tasks.task import Example, Source, Task, fixed_set
from capsjax.training.parallel import on_devices, replicate
from capsjax.training.state import DEVICES, TrainState
from capsjax.training.step import Batches, DeviceSource, _agree, run_steps


class Echo:
    """A recipe whose examples are their own label and key."""

    num_classes = 1

    def image_shape(self, source):
        return source

    def choose(self, key, labels, index):
        return index[None]

    def draw(self, key, index, images):
        return jax.random.bits(key)

    def render(self, images, labels, parameters):
        return Example(labels[0], parameters, None)


def draws(num_devices, counts, *, num_examples=26, batch_size=8, versions=1):
    """What `run_steps` trains on, step by step: the labels and the keys of the global batch."""
    devices = jax.devices()[:num_devices]

    def update(seen, batch, keys):
        labels, bits = (jax.lax.all_gather(x, "devices").reshape(-1) for x in batch[:2])
        return seen._replace(step=seen.step + 1), {"labels": labels, "bits": bits}

    images = np.zeros((num_examples, 1, 1, 1), np.uint8)
    labels = np.arange(num_examples * versions)
    arrays = Source(images, labels)
    task = Task("echo", ("",), arrays, Echo(), fixed_set(arrays, Echo()), top(1))

    batches = Batches(num_examples, batch_size, num_devices, versions)
    program = partial(run_steps, task=task, batches=batches, update=update, capacity=4)
    run = on_devices(program, devices, (None,) * 4)
    source = DeviceSource(labels, images.reshape(-1, 1), np.asarray(0, np.int32))
    state = replicate(TrainState(jnp.int32(0), (), (), ()), devices)
    source, key = replicate((source, jax.random.key(1)), devices)
    records = []
    for count in counts:
        state, record = run(state, source, key, np.int32(count))
        records.append([np.asarray(record[name])[:count] for name in ("labels", "bits")])
    return [np.concatenate(part) for part in zip(*records, strict=True)]


def test_statistics_are_averaged_and_large_counts_not_rounded():
    for own, expected in ((np.float32([1, 3]), 2), (np.full(2, 2**32 - 5, np.uint32), 2**32 - 5)):
        agreed = jax.vmap(_agree, axis_name=DEVICES)(own)
        np.testing.assert_array_equal(agreed, np.full(2, expected, own.dtype))


def test_an_epoch_visits_every_example_at_most_once():
    labels, _ = draws(1, [3, 3, 3])  # three batches of eight out of 26 make an epoch
    for epoch in range(3):
        seen = labels[3 * epoch : 3 * epoch + 3].reshape(-1)
        assert len(set(seen)) == 24
    assert not np.array_equal(labels[:3], labels[3:6])


def test_as_many_epochs_as_versions_show_each_version_once():
    labels, _ = draws(1, [3] * 6, num_examples=24, versions=3)
    for cycle in range(2):
        seen = labels[9 * cycle : 9 * cycle + 9].reshape(3, -1)
        for version, epoch in enumerate(seen):
            assert set(epoch) == set(range(24 * version, 24 * version + 24))


def test_dispatches_of_any_length_draw_the_same():
    for a, b in zip(draws(1, [3, 3]), draws(1, [1, 2, 2, 1]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("num_devices", [2, 4, 8])
def test_examples_do_not_depend_on_the_number_of_devices(num_devices):
    for a, b in zip(draws(1, [3]), draws(num_devices, [3]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_example_has_its_own_key():
    _, bits = draws(1, [3, 3])
    assert len(np.unique(bits)) == bits.size
