"""What cannot be trained is refused before anything is written."""

import pytest

from capsjax.runs import loop

STOP = r"a fraction in \[0, 1\] such as 0.9922"
RUN = "RUN"  # stands for the directory of a finished run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.batch_size": 25}, "multiple of the number of devices, 8, got 25"),
        ({"training.batch_size": 400}, "more than the 180 training images"),
        ({"training.stop_at_accuracy": 99.22}, STOP),
        (
            {"training.stop_at_accuracy": 0.9, "data.validation_fraction": 0.0},
            "needs images held out",
        ),
        ({"data.validation_fraction": 0.9999}, "training images of npz.*not held out"),
        ({"data.max_shift": 8}, r"max_shift must be in \[0, 8\)"),
        ({"model.kernel_size": 5}, "smallest is 9×9"),
        ({"init_from": "nowhere"}, "nowhere does not exist"),
        ({"frozen_layers": ("con",)}, r"frozen_layers: no parameters in 'con': did you mean 'c"),
        ({"frozen_layers": "conv"}, "must be a tuple such as .*, got 'conv'"),
        ({"frozen_layers": ("conv", "primary", "classes", "decoder")}, "leaves nothing to train"),
        ({"init_layers": ("conv",)}, "init_from is empty"),
        ({"init_from": RUN, "init_layers": ("cnov",)}, "init_layers: no .* mean 'conv'"),
        (
            {"init_from": RUN, "init_layers": ("conv",), "model.width": 1 / 16},
            r"does not fit this network.* conv/bias \(8 there, 16 here\)",
        ),
        ({"seeds": 2}, r"seeds must be 1 here, got 2: .*seeds\.train_seeds"),
    ],
)
def test_configs(config, tmp_path, tiny_run, changes, message):
    with config.ignore_type():
        for key, value in changes.items():
            config.update_from_flattened_dict({key: str(tiny_run) if value == RUN else value})
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        loop.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
