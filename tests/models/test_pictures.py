"""The CapsNet for larger pictures."""

import pytest

from capsjax import models
from tests.models.building import traced


@pytest.mark.parametrize("side", [64, 96])
def test_shapes(side):
    name = f"picture_capsnet_{side}"
    assert models.lookup(name).input_shape == (side, side, 3)
    output = traced(name)
    assert output.features["primary"].shape == (1, *((8, 8) if side == 64 else (6, 6)), 16, 8)
    assert output.reconstruction.shape == (1, side, side, 3)


def test_other_shapes():
    output = traced("picture_capsnet_64", (50, 37, 1), 3, width=1 / 16)
    assert output.features["primary"].shape[1:3] == (7, 5)
    assert output.reconstruction.shape == (1, 50, 37, 1)
