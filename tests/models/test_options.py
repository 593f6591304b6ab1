"""Options, image sizes and names that no network can have."""

import pytest
from flax import nnx

from capsjax import models

NARROW = {"kernel_size": 3, "width": 1 / 32}
CAPSNET, CHOI, CONVNET = "sabour2017_capsnet", "choi2019_mnist", "gu2021_convnet_avg"
TSAI, EFFICIENT = "tsai2020_cifar10_simple", "efficient_capsnet_mnist"


@pytest.mark.parametrize(
    ("name", "input_shape", "overrides", "message"),
    [
        ("sabour_capsnet", (28, 28, 1), {}, r"mean 'sabour2017_capsnet'.*Or one of .*register"),
        (CAPSNET, (28, 28, 1), {"widht": 2}, "did you mean 'width'"),
        (CAPSNET, (28, 28), {}, "height, width, channels"),
        (CAPSNET, 28, {}, r"input_shape must be a tuple such as \(28, 28, 1\), got 28"),
        (CAPSNET, (28, 28, 1), {"width": 0}, "width must be at least"),
        (CAPSNET, (28, 28, 1), {"num_iterations": 0}, "num_iterations must be positive"),
        (CAPSNET, (28, 28, 1), {"routing": "no"}, "must be one of dynamic, uniform, got 'no'"),
        (CHOI, (28, 28, 1), {"keep": 0.0}, r"keep must be in \(0, 1\]"),
        (CONVNET, (12, 14, 2), NARROW | {"strides": (1,)}, "one number for each layer"),
        ("gu2021_convnet_cr", (10, 12, 1), {"classifier": "max"}, "one of sum, length, linear"),
        (EFFICIENT, (28, 28, 1), {"strides": (1, 2)}, "one number for each layer"),
        (EFFICIENT, (28, 28, 1), {"primary_kernel": 10}, "smallest is 29×29"),
        (TSAI, (12, 32, 3), {}, "smallest is 13×13"),
        (TSAI, (32, 32, 3), {"pose_size": 15}, "nearest are 9 and 16"),
        (TSAI, (32, 32, 3), {"block_size": 2.5}, "block_size must be an int"),
        ("tsai2020_ablation_a", (32, 32, 3), {"activations": True}, "do not combine"),
    ],
)
def test_bad_arguments(name, input_shape, overrides, message):
    with pytest.raises(ValueError, match=message):
        models.create(name, input_shape, 10, rngs=nnx.Rngs(0), **overrides)
