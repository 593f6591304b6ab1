"""Small networks with fresh parameters, for all tests of this room."""

import pytest

from tests.models.building import build

SMALL = {"kernel_size": 3, "width": 1 / 16}


@pytest.fixture(scope="session")
def capsnet():
    """lin2018's deeper one: two layers of capsules below the classes; 12×12 images, 3 classes."""
    return build("lin2018_capsnet_deeper", (12, 12, 1), 3, num_iterations=2, **SMALL)


@pytest.fixture(scope="session")
def cnn():
    """The CNN beside it."""
    return build("lin2018_cnn_deeper", (12, 12, 1), 3, **SMALL)
