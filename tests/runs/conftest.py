"""What most tests of this room begin with."""

import signal

import pytest

from capsjax.runs import loop
from tests.tiny import quick_config, tiny_config


@pytest.fixture
def config(npz):
    return tiny_config(npz)


@pytest.fixture
def quick(npz):
    return quick_config(npz)


@pytest.fixture
def interrupt(monkeypatch):
    """Calls `train`, with a real SIGTERM after so many dispatches, or so many ends of epochs."""

    def interrupt(train, dispatches=0, epochs=0):
        method, left = "update" if dispatches else "epoch", iter(range(dispatches or epochs))
        show = getattr(loop.Display, method)

        def show_and_terminate(*args):
            show(*args)
            if next(left) == (dispatches or epochs) - 1:
                signal.raise_signal(signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Display, method, show_and_terminate)
            with pytest.raises(loop.Interrupted, match="stopped by SIGTERM; saved") as stop:
                train()
        return str(stop.value)

    return interrupt
