"""Options, image sizes and names that no network can have."""

import pytest
from flax import nnx

from capsjax import models

NARROW = {"kernel_size": 3, "width": 1 / 32}
CAPSNET, CHOI, CONVNET = "sabour2017_capsnet", "choi2019_mnist", "gu2021_convnet_avg"
TSAI, EM, EFFICIENT = "tsai2020_cifar10_simple", "tsai2020_em_cifar10_simple", "efficient_capsnet"


@pytest.mark.parametrize(
    ("name", "input_shape", "overrides", "message"),
    [
        ("sabour_capsnet", (28, 28, 1), {}, r"mean 'sabour2017_capsnet'.*Or one of .*register"),
        (CAPSNET, (28, 28, 1), {"widht": 2}, "did you mean 'width'"),
        (CAPSNET, (16, 28, 1), {}, "smallest is 17×17"),
        (CAPSNET, (28, 28), {}, "height, width, channels"),
        (CAPSNET, 28, {}, r"input_shape must be a tuple such as \(28, 28, 1\), got 28"),
        (CAPSNET, (28.0, 28, 1), {}, r"each of input_shape must be an integer, got 28\.0"),
        (CAPSNET, (28, 28, 1), {"width": 0}, "width must be at least"),
        (CAPSNET, (28, 28, 1), {"num_iterations": 0}, "num_iterations must be positive"),
        (CAPSNET, (28, 28, 1), {"routing": "no"}, "must be one of dynamic, uniform, got 'no'"),
        (CHOI, (28, 28, 1), {"num_conv_caps": -1}, "num_conv_caps must not be negative"),
        (CHOI, (28, 28, 1), {"keep": 0.0}, r"keep must be in \(0, 1\]"),
        (CONVNET, (12, 14, 2), {"kernel_size": 9}, "smallest is 17×17"),
        (CONVNET, (12, 14, 2), NARROW | {"strides": (1,)}, "one number for each layer"),
        ("gu2021_convnet_cr", (10, 12, 1), {"classifier": "max"}, "one of sum, length, linear"),
        ("gu2021_convnet_cr", (10, 12, 1), {"kernel_size": 9}, "smallest is 17×17"),
        ("lin2018_capsnet", (9, 9, 1), {"kernel_size": 7}, "smallest is 13×13"),
        (f"{EFFICIENT}_mnist", (28, 28, 1), {"strides": (1, 2)}, "one number for each layer"),
        (f"{EFFICIENT}_mnist", (28, 28, 1), {"primary_kernel": 10}, "smallest is 29×29"),
        (TSAI, (12, 32, 3), {}, "smallest is 13×13"),
        (EM, (13, 32, 3), {}, "smallest is 14×14"),
        ("tsai2020_cnn_cifar10", (20, 20, 3), {}, "smallest is 21×21"),
        ("tsai2020_cnn_cifar10", (32, 32, 3), {"strides": (2, 2)}, "one number for each layer"),
        (TSAI, (32, 32, 3), {"pose_size": 15}, "nearest are 9 and 16"),
        (TSAI, (32, 32, 3), {"block_size": 2.5}, "block_size must be an int"),
        ("tsai2020_ablation_a", (32, 32, 3), {"activations": True}, "do not combine"),
    ],
)
def test_bad_arguments(name, input_shape, overrides, message):
    with pytest.raises(ValueError, match=message):
        models.create(name, input_shape, 10, rngs=nnx.Rngs(0), **overrides)


@pytest.mark.parametrize(
    ("num_classes", "message"),
    [
        (1, "num_classes must be at least 2"),
        (2.5, r"num_classes must be an integer, got 2\.5"),
        ("10", "num_classes must be an integer, got '10'"),
    ],
)
def test_bad_numbers_of_classes(num_classes, message):
    with pytest.raises(ValueError, match=message):
        models.create(CAPSNET, (28, 28, 1), num_classes, rngs=nnx.Rngs(0))
