"""Trains a network; run again with the same arguments, it resumes.

  python experiments/train.py --config=configs/sabour2017_mnist.py --workdir=runs/mnist
  python experiments/train.py --config=configs/digits.py --workdir=runs/digits \\
      --config.training.epochs=3 --config.model.width=0.125

Any value of the config can be set this way; an unknown key is an error. The work directory gets
config.json, metrics.jsonl, TensorBoard's events/ and checkpoints/. Ctrl-C saves, then exits.

--config.seeds=5 trains seed, seed + 1, … in one call, each in its own WORKDIR/seed_N.

On several hosts the same command runs on each, with one work directory that all of them reach:

  python experiments/train.py ... --workdir=gs://bucket/run --distributed
  python experiments/train.py ... --coordinator_address=10.0.0.1:1234 --num_processes=2 \\
      --process_id=0   # and 1 on the other
"""

import sys
import threading

import _cli
from absl import app, flags, logging
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "A file of configs/; --config.SECTION.KEY=VALUE changes one of its values."
)
WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Directory of the run: new, or one of the same config, which is resumed. A local path or an "
    "address such as gs://bucket/run.",
)
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Prepared TFDS directory; default: those in CAPSJAX_DATA_DIR, then TFDS's."
)
DEVICE_BUDGET_MB = flags.DEFINE_float(
    "device_budget_mb",
    2048.0,
    "Images of a split that take more than this many MB when decoded stay on the host or in their "
    "files and are fed to the devices in batches. The examples are the same.",
)
DISTRIBUTED = flags.DEFINE_bool(
    "distributed",
    False,
    "One of several hosts, which JAX finds by itself (Cloud TPU, SLURM, Open MPI, Kubernetes).",
)
COORDINATOR_ADDRESS = flags.DEFINE_string(
    "coordinator_address", None, "One of several hosts anywhere: HOST:PORT of process 0."
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "With it: how many there are.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "With it: which this is, from 0.")
STALL_SECONDS = flags.DEFINE_float(
    "stall_seconds", 600.0, "End with an error when nothing happens for this long; 0: never."
)
SNAPSHOT_EVERY = flags.DEFINE_integer(
    "snapshot_every",
    1,
    "Epochs between images beside their reconstructions, and entropies of the couplings, for "
    "TensorBoard; 0: none.",
)
PROFILE = flags.DEFINE_string(
    "profile", None, "START:STOP: trace these steps (STOP not included) into WORKDIR/profile."
)
MEMORY_PROFILE = flags.DEFINE_integer(
    "memory_profile",
    None,
    "After this many steps, what is on the devices: WORKDIR/memory.prof, for pprof.",
)
HEARTBEAT_SECONDS = flags.DEFINE_float(
    "heartbeat_seconds",
    60.0,
    "Of several hosts one that is silent for this long is taken for dead, and the others end.",
)


def main(argv: list[str]) -> None:
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    # Orbax reports each of its steps otherwise, and with stacks the errors that it raises too.
    logging.set_verbosity(logging.FATAL)
    # After the flags are read: JAX takes seconds to import, --help should not.
    import jax

    from capsjax.training import config as configs
    from capsjax.training import loop, parallel, process, seeds, setup

    address = (COORDINATOR_ADDRESS.value, NUM_PROCESSES.value, PROCESS_ID.value)
    threading.excepthook = process.say_in_one_line
    setup.cache_programs()
    try:
        if DISTRIBUTED.value or address != (None, None, None):
            parallel.connect(*address, heartbeat_seconds=HEARTBEAT_SECONDS.value)
        options = {
            "data_dir": DATA_DIR.value,
            "device_budget_mb": DEVICE_BUDGET_MB.value,
            "monitoring": loop.Monitoring(
                stall_seconds=STALL_SECONDS.value,
                snapshot_every=SNAPSHOT_EVERY.value,
                profile=_start_stop(PROFILE.value),
                memory_profile=MEMORY_PROFILE.value,
            ),
        }
        configs.check(CONFIG.value)
        train = loop.train if CONFIG.value.seeds == 1 else seeds.train_seeds
        train(CONFIG.value, WORKDIR.value, **options)
    except process.Interrupted as stop:
        if parallel.is_first_host():
            print(f"{stop}. The same command resumes from there.")
        sys.exit(128 + stop.signum)
    except (ValueError, OSError, ArithmeticError) as error:
        process.fail(str(error), hosts=jax.process_count())


def _start_stop(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    start, _, stop = text.partition(":")
    if not (start.isdecimal() and stop.isdecimal()):
        raise ValueError(f"--profile must be START:STOP, two numbers of steps, got {text!r}")
    return int(start), int(stop)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=_cli.parse_flags)
