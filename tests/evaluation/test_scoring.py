import jax
import numpy as np
import pytest

from capsjax.evaluation.scoring import check_fits, evaluation_data, lower_score, score
from capsjax.runs import checkpoints
from capsjax.training import config as configs
from capsjax.training.build import abstract_model
from tests.data.small_datasets import write_image


@pytest.fixture(scope="module")
def checkpoint(tiny_run):
    return checkpoints.read(tiny_run)


@pytest.fixture(scope="module")
def data(checkpoint, npz):
    return evaluation_data(checkpoint.config, f"npz:{npz}", "test")


def test_scores_are_the_models_on_any_number_of_devices(checkpoint, data):
    expected = checkpoint.model(data.examples.source.images).scores
    for num_devices, batch_size in ((1, 7), (1, 20), (1, 500), (4, 48), (8, 16)):
        options = {"batch_size": batch_size, "devices": jax.devices()[:num_devices]}
        done = []
        scores = score(checkpoint.model, data.examples, **options, progress=done.append)
        np.testing.assert_allclose(scores, expected, atol=1e-6)
        assert done == [*range(batch_size, 50, batch_size), 50]


@pytest.mark.parametrize(("num_devices", "gathers", "padded"), [(1, 0, 50), (4, 1, 52)])
def test_the_program_can_be_lowered_without_parameters(
    checkpoint, data, num_devices, gathers, padded
):
    model = abstract_model(checkpoint.config)
    devices = jax.devices()[:num_devices]
    lowered = lower_score(model, data.examples, batch_size=100, devices=devices)
    assert lowered.out_info.shape == (padded, 10)
    compiled = lowered.compile()
    assert compiled.as_text().count(" all-gather(") == gathers
    assert compiled.output_shardings.device_set == set(devices)


def test_without_a_test_split_validation_images_are_evaluated(checkpoint, tmp_path):
    def write(split, count):
        for label in range(10):
            image = np.full((9, 12, 1), 20 * label, np.uint8)
            for number in range(count):
                write_image(tmp_path / split / str(label) / f"{number}.png", image)

    write("train", 3)
    write_image(tmp_path / "test" / "unlabelled.png", np.zeros((9, 12, 1), np.uint8))
    config, name = checkpoint.config, f"folder:{tmp_path}"
    with pytest.raises(ValueError, match="has no split 'test', only train"):
        evaluation_data(config, name)
    trained_on_it = configs.default("sabour2017_capsnet", name)
    for split in (None, "validation"):
        trained_on_it.data.validation_fraction = 1 / 3
        data = evaluation_data(trained_on_it, None, split)
        assert (data.split, len(data.examples)) == ("validation", 10)
        trained_on_it.data.validation_fraction = 0.0
        with pytest.raises(ValueError, match="none were held out: give another"):
            evaluation_data(trained_on_it, None, split)
    write("val", 2)
    data = evaluation_data(config, name)
    assert (data.split, len(data.examples)) == ("val", 20)
    check_fits(config, data)  # made to fit


def test_another_task_is_made_from_the_same_images():
    config = configs.default("sabour2017_capsnet", "mnist_translated")
    config.data.source = "digits"
    assert len(evaluation_data(config, "affnist_generated").examples)
    config.data.validation_fraction = 0.0  # all digits were trained on
    with pytest.raises(ValueError, match="has no validation images, none were held out"):
        evaluation_data(config, "affnist_generated", "validation")


def test_other_classes_are_refused_even_if_as_many(checkpoint, data):
    letters = data._replace(class_names=tuple("ABCDEFGHIJ"))
    with pytest.raises(
        ValueError, match=r"the classes A, B, C, D, E, … \(10\), this network takes"
    ):
        check_fits(checkpoint.config, letters)
    other_last = data._replace(class_names=(*"012345678", "nine"))
    with pytest.raises(ValueError, match=r"classes …, nine \(10\), this network takes …, 9 \(10\)"):
        check_fits(checkpoint.config, other_last)
