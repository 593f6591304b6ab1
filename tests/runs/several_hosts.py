"""One run in several processes on this machine, which take each other for hosts."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(workdir, npz, *arguments, num_hosts=2, devices=2, log=None, coordinator=None):
    """`experiments/train.py` in `num_hosts` processes of `devices` virtual devices each.

    Small enough to be trained in seconds; what they print is in `log`/hostN.
    """
    command = [
        sys.executable,
        "experiments/train.py",
        f"--config={Path(__file__).parents[1] / 'tiny.py'}:{npz}",
        f"--workdir={workdir}",
        *arguments,
    ]
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    processes = []
    for i in range(num_hosts):
        which = [f"--coordinator_address={address}", f"--num_processes={num_hosts}"]
        which += [f"--process_id={i}"]
        with (log / f"host{i}").open("w") as output:
            processes.append(
                subprocess.Popen(
                    command + which * (num_hosts > 1),
                    cwd=ROOT,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    return processes


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
