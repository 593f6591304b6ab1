"""Tasks on a source whose images tell where they come from."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import confusion_matrix

from capsjax.data import tasks
from capsjax.data.tasks.one_object import Distorted, Distortions

# Image i of the training split is everywhere 1 + i, image j of the test split 141 + j.
NUM_TRAIN, NUM_TEST = 140, 60


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """8×8 images of one colour each, ten classes in turn."""
    path = tmp_path_factory.mktemp("source") / "marked.npz"
    colours = np.arange(1, 1 + NUM_TRAIN + NUM_TEST, dtype=np.uint8)
    images = np.broadcast_to(colours[:, None, None], (len(colours), 8, 8))
    labels = np.arange(len(colours)) % 10
    np.savez(
        path,
        images=images[:NUM_TRAIN],
        labels=labels[:NUM_TRAIN],
        test_images=images[NUM_TRAIN:],
        test_labels=labels[NUM_TRAIN:],
    )
    return f"npz:{path}"


def create(name, source, **options):
    if name == "classification":
        return tasks.create(source, **{"max_shift": 1, "flip": True} | options)
    usual = {"erased": 2} if name == "mnist_distorted" else {"canvas": 14, "max_shift": 3}
    return tasks.create(name, source=source, **usual | options)


def sample(task, seed=0):
    """1000 training examples. Programs of the same shapes are compiled once in a session."""
    return jax.jit(task.sample, static_argnums=3)(jax.random.key(seed), *task.train, 1000)


def examples(evaluation_set, numbers):
    return evaluation_set.examples(np.asarray(numbers))


def of_set(task, name):
    """60 examples, spread over the set."""
    evaluation_set = task.evaluation_set(name)
    return examples(evaluation_set, np.arange(60) * len(evaluation_set) // 60)


def colours(batch):
    """The colours of the sources of all objects."""
    brightest = 255 * np.asarray(batch.objects.images).max((2, 3, 4))
    np.testing.assert_allclose(brightest, brightest.round(), atol=1e-2)
    return set(brightest.round().astype(int).ravel()) - {0}


# Those made from a source, which tetrominoes are not.
OTHERS = ("multimnist_a", "multimnist_b", "tetrominoes")
ALL = ("classification", *(name for name in tasks.generated() if name not in OTHERS))


@pytest.mark.parametrize("name", ALL)
def test_train_validation_and_test_never_mix(name, source):
    task = create(name, source)
    train, validation = colours(sample(task)), colours(of_set(task, "validation"))
    assert not train & validation
    assert train | validation <= set(range(1, NUM_TRAIN + 1))
    assert len(train) > 100
    for test_name in task.tests:
        test = colours(of_set(task, test_name))
        assert test <= set(range(NUM_TRAIN + 1, NUM_TRAIN + NUM_TEST + 1))


@pytest.mark.parametrize("name", ALL)
def test_examples_say_what_they_are(name, source):
    task = create(name, source)
    for batch, count in ((sample(task), 1000), (of_set(task, "test"), 60)):
        images, labels = batch.objects
        assert batch.image.shape == (count, *task.input_shape)
        assert batch.image.dtype == np.float32
        assert batch.label.shape == (count, len(task.class_names))
        # The sum of the objects, their classes, each with its own source's class.
        np.testing.assert_allclose(
            batch.image, np.minimum(np.sum(images, axis=1), 1), atol=1e-6, rtol=0
        )
        np.testing.assert_array_equal(batch.label, labels.sum(1))
        brightest = (255 * np.asarray(images).max((2, 3, 4))).round().astype(int)
        present = labels.sum(-1) > 0
        np.testing.assert_array_equal(present, brightest > 0)
        np.testing.assert_array_equal(np.argmax(labels, -1)[present], (brightest[present] - 1) % 10)


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_images(name, source):
    first, second = create(name, source), create(name, source)
    jax.tree.map(np.testing.assert_array_equal, sample(first), sample(second))
    jax.tree.map(np.testing.assert_array_equal, of_set(first, "test"), of_set(second, "test"))
    assert np.any(np.asarray(sample(first, seed=1).image != sample(second).image))


def test_numbers_from_the_end_and_arrays_of_numpy(source):
    task = create("mnist_translated", source)
    tests = task.evaluation_set("test")
    for make in (tests.examples, partial(tasks.render, tests)):
        last, same = (make(np.array([number]))[0] for number in (-1, len(tests) - 1))
        np.testing.assert_array_equal(last, same)
    drawn = task.sample(jax.random.key(0), *task.train, 1000).image
    np.testing.assert_array_equal(drawn, sample(task).image)


def keys_and_indices(task, count):
    """Draws `count` training examples, going round the sources."""
    return jax.random.split(jax.random.key(0), count), np.arange(count) % len(task.train.labels)


def choices(task, count):
    """The places of the source images of `count` training examples."""
    keys, indices = keys_and_indices(task, count)
    choose = jax.jit(jax.vmap(task.recipe.choose, in_axes=(0, None, 0)))
    return np.asarray(choose(keys, task.train.labels, indices))


def draws(task, count):
    """Their parameters."""
    images = task.train.images[choices(task, count)]
    return jax.jit(jax.vmap(task.recipe.draw))(*keys_and_indices(task, count), images)


def chi_squared(observed, expected=None):
    return scipy.stats.chisquare(np.ravel(observed), expected).pvalue


def pair_counts(task, count):
    return confusion_matrix(*task.train.labels[choices(task, count)].T, labels=range(10))


def test_partners_are_uniform_in_other_classes_and_their_images(source):
    task = create("multimnist", source, validation_fraction=0.0)
    counts = pair_counts(task, 14000)
    assert np.trace(counts) == 0
    assert chi_squared(counts[~np.eye(10, dtype=bool)]) > 1e-3
    assert chi_squared(np.bincount(choices(task, 14000)[:, 1], minlength=NUM_TRAIN)) > 1e-3


def test_offsets_are_uniform(source):
    task = create("multimnist", source)
    offsets = np.asarray(draws(task, 10000).offsets).reshape(-1, 4)
    for values in offsets.T:
        assert chi_squared(np.bincount(values + 3, minlength=7)) > 1e-3
    assert np.abs(np.corrcoef(offsets.T) - np.eye(4)).max() < 0.05


def test_one_digit_in_a_sixth_of_diverse_multimnist(source):
    task = create("diverse_multimnist", source)
    present = np.asarray(draws(task, 12000).present)
    assert present[:, 0].all()
    assert scipy.stats.binomtest(int(present[:, 1].sum()), 12000, 5 / 6).pvalue > 1e-3


def test_transfer_domains(source):
    a, b = (
        {tuple(sorted(pair)) for pair in np.argwhere(pair_counts(create(name, source), 2000))}
        for name in ("multimnist_a", "multimnist_b")
    )
    assert not a & b
    assert a | b == set(combinations(range(10), 2))
    assert (len(a), len(b)) == (23, 22)
    assert {(1, 2), (3, 4), (7, 9), (1, 8)} <= a  # as the paper has them
    assert {(2, 3), (1, 4), (7, 8)} <= b
    for pairs in (a, b):
        assert set(np.bincount(np.ravel(list(pairs)))) == {4, 5}


def test_augmentation_of_classification(source):
    task = tasks.create(source, max_shift=0, flip=True, max_rotation=20.0)
    drawn = draws(task, 4000)
    assert scipy.stats.kstest(drawn.rotation, "uniform", (-20, 40)).pvalue > 1e-3
    assert scipy.stats.binomtest(int(drawn.flipped.sum()), 4000).pvalue > 1e-3
    images = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    # Without a rotation the resampled path is the exact one.
    for flipped in (False, True):
        moves = jax.tree.map(lambda x: x[0], drawn)._replace(
            rotation=jnp.array(0.0), flipped=jnp.array(flipped)
        )
        expected = images[0, :, ::-1] if flipped else images[0]
        image = task.recipe.render(images, np.zeros(1, np.int32), moves).image
        np.testing.assert_allclose(image, expected / np.float32(255), atol=1e-5)


def test_distortions(source):
    task = create("mnist_distorted", source)
    drawn = draws(task, 4000)
    turned = drawn.rotation != 0
    assert scipy.stats.binomtest(int(turned.sum()), 4000).pvalue > 1e-3
    inside = np.abs(drawn.rotation[turned]) < 30
    normal = scipy.stats.truncnorm(-1 / 0.33, 1 / 0.33, scale=0.33 * 30)
    assert scipy.stats.kstest(drawn.rotation[turned][inside], normal.cdf).pvalue > 1e-3
    squeeze = drawn.squeeze[drawn.squeeze < 0.25]
    half = scipy.stats.truncnorm(0, 1 / 0.33, scale=0.33 * 0.25)
    assert scipy.stats.kstest(squeeze, half.cdf).pvalue > 1e-3
    # These images are ink from edge to edge, so they only move where a rotation cuts corners.
    assert not np.any(drawn.translation[~turned])
    assert np.bincount(drawn.corner.ravel())[2:].min() > 1000


def test_rendering_distortions(source):
    recipe = create("mnist_distorted", source).recipe
    image = np.zeros((12, 12, 1), np.uint8)
    image[2:6, 3:7] = 255

    def render(**changes):
        parameters = Distortions(
            rotation=jnp.array(0.0),
            translation=jnp.zeros(2),
            squeeze=jnp.array(0.0),
            corner=jnp.array([10, 10]),
        )._replace(**{name: jnp.asarray(value) for name, value in changes.items()})
        return 255 * recipe.render(image[None], np.zeros(1, np.int32), parameters).image

    np.testing.assert_allclose(render(), image, atol=1e-3)
    moved = np.roll(image, (1, 2), (0, 1))
    np.testing.assert_allclose(render(translation=[1.0, 2.0]), moved, atol=1e-3)
    np.testing.assert_allclose(render(rotation=90.0), np.rot90(image), atol=1e-2)
    erased = image.copy()
    erased[3:5, 4:6] = 0
    np.testing.assert_allclose(render(corner=[3, 4]), erased, atol=1e-3)
    narrow = render(squeeze=0.5)
    np.testing.assert_allclose(narrow.sum(), image.sum() / 2, rtol=1e-3)
    assert not np.any(narrow[:, :3])


def test_distorted_images_stay_whole():
    """Moved by at most the margins, and often by all of them."""
    image = np.zeros((1, 12, 12, 1), np.uint8)
    image[0, 3:9, 2:7] = 255
    recipe = Distorted(10)
    keys = jax.random.split(jax.random.key(0), 2000)
    drawn = jax.vmap(lambda key: recipe.draw(key, 0, image))(keys)
    rows, columns = drawn.translation.T
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (-3, 3, -2, 5)


def test_the_shift_grid(source):
    task = create("multimnist", source)
    grid = task.evaluation_set("shift_grid")
    assert len(grid) == 90 * 49  # seven offsets per axis here, nine in the paper
    start = grid.recipe.first_of(fixed=7, moving=8)
    batch = examples(grid, range(start, start + 49))
    np.testing.assert_array_equal(batch.label, np.tile(np.isin(np.arange(10), [7, 8]), (49, 1)))
    fixed, moving = np.moveaxis(np.asarray(batch.objects.images[..., 0]), 1, 0)
    assert np.ptp(fixed, axis=0).max() == 0
    corners = [tuple(np.argwhere(image)[0] - 3) for image in moving]
    assert corners == [(dy, dx) for dy in range(-3, 4) for dx in range(-3, 4)]
    np.testing.assert_array_equal(np.argwhere(fixed[0])[0], [3, 3])


def test_a_limited_number_of_versions(source):
    """The version is in the index; the key counts for nothing."""
    task = create("multimnist", source, versions=3)
    n = len(task.train.labels)
    labels, images = task.train.labels, task.train.images
    choose = jax.vmap(task.recipe.choose, in_axes=(0, None, 0))
    index = jnp.tile(5 + n * jnp.arange(3), 20)
    keys = jax.random.split(jax.random.key(0), 60)
    chosen = choose(keys, labels, index)
    drawn = jax.vmap(task.recipe.draw)(keys, index, images[np.asarray(chosen)])
    assert set(np.asarray(chosen[:, 0])) == {5}
    flat = np.concatenate([chosen, drawn.offsets.reshape(60, -1)], axis=1)
    rows, counts = np.unique(flat, axis=0, return_counts=True)
    assert len(rows) == 3
    assert set(counts) == {20}
    chosen = choose(jax.random.split(jax.random.key(1), 3 * n), labels, jnp.arange(3 * n))
    np.testing.assert_array_equal(chosen[:, 0], np.tile(np.arange(n), 3))


def test_centred_digits_are_not_moved(source):
    batch = of_set(create("affnist_generated", source), "test_centred")
    assert batch.image.shape[1:] == (14, 14, 1)
    assert np.all(np.asarray(batch.image)[:, 3:11, 3:11] > 0)
    assert np.all(np.asarray(batch.image)[:, :3] == 0)


def test_versions_of_a_test_image_are_neighbours(source):
    test = create("affnist_generated", source, test_versions=4).evaluation_set("test")
    assert len(test) == 4 * NUM_TEST
    batch = examples(test, range(8))
    brightest = (255 * np.asarray(batch.image).max((1, 2, 3))).round().astype(int)
    assert brightest.tolist() == [NUM_TRAIN + 1] * 4 + [NUM_TRAIN + 2] * 4
    assert len({image.tobytes() for image in np.asarray(batch.image)}) == 8


@pytest.mark.parametrize("name", ALL)
def test_labels_are_those_of_the_examples(name, source):
    test = create(name, source).evaluation_set("test")
    labels = test.labels()
    assert labels.shape == (len(test), 10)
    chosen = np.arange(60) * len(test) // 60
    np.testing.assert_array_equal(labels[chosen], examples(test, chosen).label)


def test_nothing_is_held_out_without_a_fraction(source):
    task = create("multimnist", source, validation_fraction=0.0)
    assert len(task.train.labels) == NUM_TRAIN
    assert len(task.validation) == 0
    assert task.validation.labels().shape == (0, 10)


@pytest.mark.parametrize("name", ALL)
def test_a_part_of_the_training_images(name, source):
    whole, half = create(name, source), create(name, source, train_fraction=0.5)
    for a, b in zip(np.bincount(whole.train.labels), np.bincount(half.train.labels), strict=True):
        assert abs(a / 2 - b) <= 0.5
    there = {image.tobytes() for image in whole.train.images}
    assert all(image.tobytes() in there for image in half.train.images)
    np.testing.assert_array_equal(whole.validation.source.images, half.validation.source.images)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("multimnist", {"max_shfit": 2}, "multimnist has no option 'max_shfit': did you mean 'max"),
        ("classification", {"canvas": 40}, "has no option 'canvas'"),
        ("mnist_translated", {"canvas": 7}, "canvas: 7 is smaller than the images of 8×8"),
        ("mnist_translated", {"max_shift": 14}, r"max_shift must be in \[0, 14\)"),
        ("mnist_distorted", {"erased": 3}, r"erased must be in \[0, 2\] here, got 3"),
        ("affnist_generated", {"min_scale": 2.0}, "min_scale 2.0 and max_scale 1.2"),
        ("affnist_generated", {"test_versions": 0}, "test_versions must be positive, got 0"),
        ("diverse_multimnist", {"single_probability": 1.5}, r"single_probability must be in"),
        ("diverse_multimnist", {"threshold": 1.0}, r"threshold must be in \(0, 1\)"),
    ],
)
def test_bad_options(name, options, message, source):
    with pytest.raises(ValueError, match=message):
        create(name, source, **options)


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("multimnist", np.zeros(20, int), "images of two classes, there is 1"),
        ("multimnist_a", np.arange(30) % 3, "domains are pairs of ten digits, there are 3"),
        ("diverse_multimnist", np.arange(30) % 2 * 2, "'1' has no images in the training"),
    ],
)
def test_sources_with_too_few_classes(name, labels, message, tmp_path):
    np.savez(tmp_path / "x.npz", images=np.full((len(labels), 8, 8), 255, np.uint8), labels=labels)
    with pytest.raises(ValueError, match=message):
        create(name, f"npz:{tmp_path / 'x.npz'}")
