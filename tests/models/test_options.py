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
        ("sabour_capsnet", (28, 28, 1), {}, "did you mean 'sabour2017_capsnet'"),
        (CAPSNET, (28, 28, 1), {"widht": 2}, "did you mean 'width'"),
        (CAPSNET, (16, 28, 1), {}, "smallest is 17×17"),
        (CAPSNET, (28, 28), {}, "height, width, channels"),
        (CAPSNET, 28, {}, r"input_shape must be a tuple such as \(28, 28, 1\), got 28"),
        (CAPSNET, (28.0, 28, 1), {}, r"each of input_shape must be an integer, got 28\.0"),
        (CAPSNET, (28, 28, 1), {"width": 0}, "width must be at least"),
        (CAPSNET, (28, 28, 1), {"num_iterations": 0}, "num_iterations must be positive"),
        (CAPSNET, (28, 28, 1), {"decoder_features": (8, 0)}, "decoder_features must be positive"),
        (CAPSNET, (28, 28, 1), {"routing": "no"}, "must be one of dynamic, uniform, got 'no'"),
        (CAPSNET, (28, 28, 1), {"reconstruction": "full"}, "one of conditional, normal, none"),
        (CHOI, (28, 28, 1), {"num_conv_caps": -1}, "num_conv_caps must not be negative"),
        (CHOI, (28, 28, 1), {"keep": 0.0}, r"keep must be in \(0, 1\]"),
        (CHOI, (28, 28, 1), {"reconstruction": "some"}, "reconstruction must be one of"),
        (CHOI, (28, 28, 1), {"channels": 0}, "channels must be positive"),
        (CONVNET, (12, 14, 2), {"kernel_size": 9}, "smallest is 17×17"),
        ("gu2021_convnet_fc", (12, 14, 2), {"kernel_size": 5}, "smallest is 13×13"),
        (CONVNET, (12, 14, 2), NARROW | {"strides": (1,)}, "one number for each layer"),
        (CONVNET, (12, 14, 2), NARROW | {"features": (8, 0)}, "features must be positive"),
        ("gu2021_convnet_cr", (10, 12, 1), {"classifier": "max"}, "one of sum, length, linear"),
        ("gu2021_convnet_cr", (10, 12, 1), {"reconstruction": "none"}, "of conditional, normal"),
        ("gu2021_convnet_cr", (10, 12, 1), {"kernel_size": 9}, "smallest is 17×17"),
        ("lin2018_capsnet", (9, 9, 1), {"update_rate": 1.5}, r"must be in \(0, 1\], got 1.5"),
        ("lin2018_capsnet", (9, 9, 1), {"middle_capsules": (4, 0)}, "middle_capsules must be pos"),
        ("lin2018_capsnet", (9, 9, 1), {"kernel_size": 7}, "smallest is 13×13"),
        (f"{EFFICIENT}_mnist", (28, 28, 1), {"strides": (1, 2)}, "one number for each layer"),
        (f"{EFFICIENT}_mnist", (28, 28, 1), {"normalization": "layer"}, "one of batch, instance"),
        (f"{EFFICIENT}_mnist", (28, 28, 1), {"primary_kernel": 10}, "smallest is 29×29"),
        (TSAI, (12, 32, 3), {}, "smallest is 13×13"),
        (EM, (13, 32, 3), {}, "smallest is 14×14"),
        ("tsai2020_diverse_vector", (32, 12, 1), {}, "smallest is 13×13"),
        ("tsai2020_cnn_cifar10", (20, 20, 3), {}, "smallest is 21×21"),
        ("tsai2020_cnn_cifar10", (32, 32, 3), {"strides": (2, 2)}, "one number for each layer"),
        (TSAI, (32, 32, 3), {"pose_size": 15}, "nearest are 9 and 16"),
        (EM, (32, 32, 3), {"pose_size": 8}, "nearest are 4 and 9"),
        (TSAI, (32, 32, 3), {"backbone": "vgg"}, "backbone must be one of"),
        (TSAI, (32, 32, 3), {"block_size": 0}, "block_size must be positive"),
        (TSAI, (32, 32, 3), {"block_size": 2.5}, "block_size must be an int"),
        (TSAI, (32, 32, 3), {"block_size": "4"}, "block_size must be an int"),
        ("tsai2020_ablation_a", (32, 32, 3), {"activations": True}, "do not combine"),
        (CAPSNET, (28, 28, 1), {"mean": (float("nan"),), "std": (1.0,)}, "each of mean must be"),
        (CAPSNET, (28, 28, 1), {"mean": (float("inf"),), "std": (1.0,)}, "each of mean must be"),
        (CAPSNET, (28, 28, 1), {"mean": ("a",), "std": (1.0,)}, "each of mean must be"),
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
