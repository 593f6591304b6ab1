"""What a person sees of a run."""

import datetime
import io

import pytest
from rich.console import Console

from capsjax.runs.display import Display

TRAIN = {"loss": 0.5, "accuracy": 0.9}


@pytest.fixture
def display():
    console = Console(file=io.StringIO(), width=300)
    return Display(console, first=0, total=40, batch_size=5, steps_per_epoch=10, label="seed 3  ")


def shown(display):
    return display._console.file.getvalue().splitlines()


def left(line):
    return datetime.datetime.strptime(line.split()[-2], "%H:%M:%S").time()


def test_each_line_names_the_seed(display):
    display.update(10, 10, 20.0, 0.5, 0.9)
    display.epoch(10, 1, TRAIN, 0.8, seconds=1.0)
    (line,) = shown(display)
    assert line.startswith("seed 3  epoch   1  step 10/40  loss 0.5000")
    assert "validation 80.00%" in line
    assert "2 images/s" in line  # 50 in 20 seconds, rounded to even


def test_time_left_does_not_count_compilation(display):
    """An end of an epoch takes a second, but a hundred the first time, where it is compiled."""
    for epoch, seconds in enumerate([100.0, 1.0], start=1):
        display.update(10 * epoch, 10, 20.0, 0.5, 0.9)
        display.epoch(10 * epoch, epoch, TRAIN, None, seconds)
    first, second = map(left, shown(display))
    assert first == datetime.time(0, 1, 0)  # 30 steps of two seconds
    assert second == datetime.time(0, 0, 42)  # 20 of them, and two ends of epochs


def test_a_resumed_run_counts_its_own_steps_alone():
    console = Console(file=io.StringIO(), width=300)
    display = Display(console, first=30, total=40, batch_size=5, steps_per_epoch=10)
    display.update(35, 5, 10.0, 0.5, 0.9)
    display.epoch(35, 4, TRAIN, None, seconds=1.0)
    assert left(shown(display)[0]) == datetime.time(0, 0, 10)
