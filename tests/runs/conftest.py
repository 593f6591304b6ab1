"""What most tests of this room begin with."""

import pytest

from tests.tiny import quick_config, tiny_config


@pytest.fixture
def config(npz):
    return tiny_config(npz)


@pytest.fixture
def quick(npz):
    return quick_config(npz)
