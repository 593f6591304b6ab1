"""Several processes as hosts: real ones, on loopback, with XLA's CPU collectives."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import pytest

from capsjax.runs import hosts, loop
from tests.processes import ROOT
from tests.tiny import tiny_config

FOUR = jax.devices()[:4]
EPOCHS = 8

REPLICATING = """
import sys
import jax, numpy as np
from jax.experimental import multihost_utils

address, number = sys.argv[1], int(sys.argv[2])
from capsjax.runs import checkpoints, directory, hosts

hosts.connect(address, 2, number)
assert jax.config.values["jax_cuda_visible_devices"] == "all"  # not SLURM's one of each process
gathered = []
gather = multihost_utils.process_allgather
multihost_utils.process_allgather = lambda x, **how: gathered.append(np.size(x)) or gather(x, **how)

from capsjax.training.parallel import replicate

tree = {"array": np.arange(12.0, dtype="f").reshape(3, 4), "none": np.full(3, np.nan), "one": 2}
copies = replicate(tree | {"key": jax.random.key(1)}, jax.devices())
again = replicate(copies, jax.devices())
for name, array in tree.items():
    assert again[name] is copies[name]  # not sent again
    assert again[name].sharding.is_fully_replicated and len(again[name].devices()) == 4
    np.testing.assert_array_equal(np.asarray(again[name]), array)
    assert again[name].dtype == jax.numpy.asarray(array).dtype, name
assert (jax.random.key_data(again["key"]) == jax.random.key_data(jax.random.key(1))).all()
assert max(gathered) == 1, gathered
assert replicate(np.ones(number + 1), jax.local_devices()).shape == (number + 1,)
try:
    replicate(np.float32(number), jax.devices())
except AssertionError as error:
    print(error)


def read():
    if number == 1:
        raise FileNotFoundError("no data in /nowhere")


try:
    hosts.together(read)
except (ValueError, OSError) as error:
    print(type(error).__name__, error)
assert hosts.from_first_host(lambda: {"é": number}) == {"é": 0}

from etils import epath

if number == 0:  # one host alone can read
    run = checkpoints.read(sys.argv[3])
directory.SEEN_SECONDS = 0
config = hosts.from_first_host(lambda: directory.configs.to_json(run.config))
workdir = epath.Path(sys.argv[4]) / str(number)
try:
    with directory.claimed(workdir, directory.configs.from_json(config)):
        print("claimed")
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory, npz):
    """One process of four devices."""
    config = tiny_config(npz)
    config.training.epochs = EPOCHS
    return loop.train(config, tmp_path_factory.mktemp("alone") / "run", devices=FOUR)


@pytest.fixture
def run(tmp_path, npz):
    """Starts two hosts of two devices; ends what is left of them after the test.

    What they print is in host0 and host1.
    """
    started = []

    def begin(*arguments, epochs=EPOCHS, of_host_1=()):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            *(sys.executable, "experiments/train.py", f"--config=tests/tiny.py:{npz}"),
            *(f"--workdir={tmp_path / 'run'}", f"--config.training.epochs={epochs}", *arguments),
            *(f"--coordinator_address={address}", "--num_processes=2"),
        ]
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        }
        for i, own in enumerate(((), of_host_1)):
            with (tmp_path / f"host{i}").open("w") as log:
                words = [*command, f"--process_id={i}", *own]
                started.append(
                    subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log)
                )
        return started[-2:]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for(text, log, processes, seconds=240):
    """Until `text` is in the log."""
    for _ in range(20 * seconds):
        if text in log.read_text():
            return
        assert all(p.poll() is None for p in processes), log.read_text()
        time.sleep(0.05)
    raise TimeoutError(f"{text!r} is not in {log.read_text()}")


def test_what_hosts_exchange(quick, tmp_path):
    """What is replicated is compared by a checksum: all arrays of all hosts on every device would
    be twice the images on two hosts. What one host cannot read is an error on both.
    """
    loop.train(quick, tmp_path / "run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    slurm = dict.fromkeys(("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"), "0")
    slurm |= {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost"}
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    environment = os.environ | devices | slurm
    words = [sys.executable, "-c", REPLICATING, address]
    folders = [str(tmp_path / "run"), str(tmp_path)]
    both = [
        subprocess.Popen(
            [*words, str(n), *folders], cwd=ROOT, env=environment, stdout=-1, text=True
        )
        for n in range(2)
    ]
    errors = ["ValueError host 1: no data in /nowhere", "FileNotFoundError no data in /nowhere"]
    for process, error in zip(both, errors, strict=True):
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0
        assert "hosts hold different values of an array" in said
        assert error in said
        assert "1/config.json, which host 0 wrote, is not there" in said
        assert "claimed" not in said


def end(processes, seconds=240):
    return [p.wait(timeout=seconds) for p in processes]


def records(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def assert_same_numbers(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a["split"] == b["split"]
        numbers = b.keys() - {"split"}
        assert [a[k] for k in numbers] == pytest.approx([b[k] for k in numbers], rel=1e-5)


def test_sigterm_to_one_stops_both_and_one_process_goes_on(run, alone, npz, tmp_path):
    processes = run()
    wait_for("epoch   1", tmp_path / "host0", processes)
    processes[1].send_signal(signal.SIGTERM)
    assert end(processes) == [143, 143]
    first, second = ((tmp_path / f"host{i}").read_text() for i in (0, 1))
    assert "stopped by SIGTERM; saved at step" in first
    assert "epoch" not in second  # host 0 alone reports
    config = tiny_config(npz)
    config.training.epochs = EPOCHS
    result = loop.train(config, tmp_path / "run", devices=FOUR)
    assert_same_numbers(result.history.records, alone.history.records)


@pytest.mark.slow
def test_two_hosts_go_on_where_one_process_stopped(run, alone, npz, tmp_path, interrupt):
    config = tiny_config(npz)
    config.training.epochs = EPOCHS
    said = interrupt(lambda: loop.train(config, tmp_path / "run", devices=FOUR), epochs=1)
    assert "saved at step 7" in said
    assert end(run()) == [0, 0]
    assert "resuming at step 7" in (tmp_path / "host0").read_text()
    assert_same_numbers(records(tmp_path / "run"), alone.history.records)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2048, 0], ids=["resident", "fed"])
def test_two_hosts_are_the_same_run_as_one_process(run, alone, tmp_path, budget):
    assert end(run(f"--device_budget_mb={budget}")) == [0, 0]
    assert ("fed from the host" in (tmp_path / "host0").read_text()) == (budget == 0)
    assert_same_numbers(records(tmp_path / "run"), alone.history.records)
    refused = run("--config.seed=1")  # both are told what host 0 found
    assert end(refused) == [1, 1]
    for log in (tmp_path / "host0", tmp_path / "host1"):
        assert "holds a run of another config" in log.read_text()


UNHEALTHY = r"tasks are unhealthy \(stopped sending heartbeats\):\s+1\b"


@pytest.mark.parametrize(
    ("lost", "by", "message"),
    [
        (1, signal.SIGSTOP, UNHEALTHY),
        (1, signal.SIGKILL, UNHEALTHY),
        (0, signal.SIGSTOP, r"Deadline Exceeded[\s\S]*/Heartbeat"),
        (0, signal.SIGKILL, "the leader task was preempted/died"),
    ],
)
@pytest.mark.slow
def test_a_lost_host_ends_the_other_with_jax_s_message(run, tmp_path, lost, by, message):
    processes = run("--heartbeat_seconds=10", epochs=10_000)
    wait_for("epoch   1", tmp_path / "host0", processes)
    began = time.monotonic()
    processes[lost].send_signal(by)
    code = processes[1 - lost].wait(timeout=120)
    print(f"{time.monotonic() - began:.1f} s")
    assert code == -signal.SIGABRT
    assert re.search(message, (tmp_path / f"host{1 - lost}").read_text())
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_a_save_that_fails_ends_both(run, tmp_path):
    processes = run("--heartbeat_seconds=10", epochs=10_000)
    wait_for("epoch   1", tmp_path / "host0", processes)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "gone")
    (tmp_path / "run" / "checkpoints").write_text("no directory")
    assert end(processes) == [1, 1]
    for log in (tmp_path / "host0", tmp_path / "host1"):
        assert "error: " in log.read_text().splitlines()[-1]


def test_the_config_of_host_0_counts(run, npz, tmp_path):
    processes = run(epochs=1, of_host_1=("--config.training.epochs=3",))
    assert end(processes) == [0, 0]
    assert [r["step"] for r in records(tmp_path / "run")][-1] == 7


def test_an_address_without_a_port():
    with pytest.raises(ValueError, match=r"must be HOST:PORT, got '10\.0\.0\.1'"):
        hosts.connect("10.0.0.1", 2, 0)


def test_no_cluster_and_no_addresses(tmp_path):
    train = [sys.executable, "experiments/train.py", "--config=configs/digits.py", "--distributed"]
    ended = subprocess.run(
        [*train, f"--workdir={tmp_path}"], cwd=ROOT, capture_output=True, text=True
    )
    assert "Where JAX finds no cluster, each host needs all three" in ended.stderr
