import re
import time

import jax
import pytest

from capsjax.training import watch


@pytest.fixture
def ends(monkeypatch):
    """What would have ended the process."""
    problems = []
    monkeypatch.setattr(watch, "_end", problems.append)
    monkeypatch.setattr(watch, "TICK_SECONDS", 0.01)
    return problems


def wait(condition, seconds=10):
    for _ in range(100 * seconds):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError


def test_a_stall_ends_the_process_and_says_what_stalled(ends):
    with watch.Watch(0.2) as it:
        it.doing("at step 7")
        wait(lambda: ends)
    assert "no progress for 0.2 seconds while at step 7" in ends[0]
    assert "--stall_seconds" in ends[0]


def test_progress_is_no_stall(ends):
    with watch.Watch(0.3) as it:
        for step in range(20):
            it.doing(f"at step {step}")
            time.sleep(0.03)
    time.sleep(0.5)  # over: nobody watches
    assert not ends


def pulse(**changes):
    return {"name": "node", "beat": 1, "doing": "at step 7", "failed": None} | changes


@pytest.mark.parametrize(
    ("silent", "message"),
    [
        ({1: 70.0}, r"host 1 of 3 \(node1\) gave no sign of life for 60 seconds"),
        # Host 0 relays: without it this one does not even hear itself.
        ({0: 70.0, 1: 70.0, 2: 70.0}, r"host 0 of 3 \(node0\) gave no sign of life"),
    ],
)
def test_silent_hosts_are_named(monkeypatch, silent, message):
    monkeypatch.setattr(watch.jax, "process_count", lambda: 3)
    it = watch.Watch()
    it._pulses = {i: pulse(name=f"node{i}") for i in range(3)}
    assert it._lost() is None
    it._silent |= silent
    assert re.search(message, it._lost())


def test_the_error_of_another_host_is_told(monkeypatch):
    monkeypatch.setattr(watch.jax, "process_count", lambda: 2)
    it = watch.Watch()
    it._pulses = {0: pulse(), 1: pulse(failed="OSError: disk full")}
    assert it._lost() == "host 1 of 2 (node) ended with OSError: disk full"


def test_a_stall_names_the_hosts_that_are_elsewhere(monkeypatch):
    monkeypatch.setattr(watch.jax, "process_count", lambda: 2)
    it = watch.Watch(10)
    it.doing("at step 7")
    it._pulses = {0: pulse(), 1: pulse(doing="saving the checkpoint of step 5")}
    it._idle = 11
    assert "(node): saving the checkpoint of step 5" in it._stalled()


@pytest.mark.parametrize("error", [OSError("disk full"), jax.errors.JaxRuntimeError("peer")])
def test_an_error_of_this_host_alone_ends_it_when_the_others_have_heard(monkeypatch, ends, error):
    monkeypatch.setattr(watch.jax, "process_count", lambda: 2)
    monkeypatch.setattr(watch.Watch, "_exchange", lambda self: None)
    told = []
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: told.append(it._failure))
    with pytest.raises(type(error)), watch.Watch() as it:
        raise error
    # Of a collective that failed, `_judge` will say why.
    assert told == ["OSError: disk full" if isinstance(error, OSError) else None]
    assert ends == [f"{type(error).__name__}, see above"]


def test_an_error_of_all_hosts_takes_the_usual_way(monkeypatch, ends):
    monkeypatch.setattr(watch.jax, "process_count", lambda: 2)
    monkeypatch.setattr(watch.Watch, "_exchange", lambda self: None)
    with pytest.raises(watch.Diverged), watch.Watch():
        raise watch.Diverged("loss is nan")
    assert not ends


def test_no_limit(ends):
    with watch.Watch(0) as it:
        it.doing("at step 1")
        time.sleep(0.2)
    with watch.Watch(0.1) as it:
        it.doing("compiling", limited=False)
        time.sleep(0.3)
    assert not ends
    with pytest.raises(ValueError, match="stall_seconds must be ≥ 0"):
        watch.Watch(-1)
