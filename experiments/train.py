"""Trains a network; run again with the same arguments, it resumes.

  python experiments/train.py --config=configs/sabour2017_mnist.py --workdir=runs/mnist
  python experiments/train.py --config=configs/digits.py --workdir=runs/digits \\
      --config.training.epochs=3 --config.model.width=0.125

Any value of the config can be set this way. Another name (--config.optimizer.name=sgd) brings its
own options. If you train on only a few pictures of your own (--config.data.name=folder:PATH or
npz:PATH), it uses smaller batches and more epochs than the recipe, unless you set them. Ctrl-C
saves, then exits. A larger --config.training.epochs extends a run.

--config.seeds=5 trains seed, seed + 1, … in one call, each in its own WORKDIR/seed_N.

On several hosts, run the same command on each, with one work directory that all can reach:

  python experiments/train.py ... --workdir=gs://bucket/run --distributed
  python experiments/train.py ... --coordinator_address=10.0.0.1:1234 --num_processes=2 \\
      --process_id=0   # and 1 on the other
"""

import argparse
import shlex
import sys

import _cli
import ml_collections
from absl import logging

import capsjax
from capsjax import _files, runs

# A run on a folder has at least so many steps, and an epoch of few pictures so many batches.
FEWEST_STEPS, BATCHES_OF_FEW, SMALLEST_BATCH = 400, 8, 8
FEW = 50  # pictures held out: an accuracy of fewer comes in steps above 2 %


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    _cli.add_config(parser)
    option = parser.add_argument
    option("--workdir", required=True, metavar="DIR", help="of the run, local or gs://bucket/run")
    _cli.add(parser, "--data_dir", "--device_budget_mb")
    text = "end with an error when nothing happens for this long, 0 for never"
    option("--stall_seconds", type=float, default=600.0, metavar="S", help=text)
    option = parser.add_argument_group("several hosts").add_argument
    text = "JAX finds the hosts by itself (Cloud TPU, SLURM, Open MPI, Kubernetes)"
    option("--distributed", action="store_true", help=text)
    option("--coordinator_address", metavar="HOST:PORT", help="address of process 0, on any hosts")
    option("--num_processes", type=int, metavar="N", help="number of processes")
    option("--process_id", type=int, metavar="I", help="number of this process, from 0")
    text = "a host that is silent for this long counts as dead, and the others stop"
    option("--heartbeat_seconds", type=float, default=60.0, metavar="S", help=text)
    return parser


def main(args: argparse.Namespace) -> None:
    """Trains, and says what came out."""
    address = (args.coordinator_address, args.num_processes, args.process_id)
    logging.set_verbosity(logging.FATAL)  # Orbax reports the errors that it raises, with stacks
    config = _cli.config_of(args)
    runs.process.cache_programs()
    try:
        if args.distributed or address != (None, None, None):
            runs.hosts.connect(*address, heartbeat_seconds=args.heartbeat_seconds)
        if ":" in args.overrides.get("data.name", ""):  # which the recipe was not made for
            fit_length(config, args)
        options = {
            "data_dir": args.data_dir,
            "device_budget_mb": args.device_budget_mb,
            "stall_seconds": args.stall_seconds,
        }
        if config.seeds == 1:
            history = runs.loop.train(config, args.workdir, **options).history
            _say_end(f"{_came_out(history)}: {args.workdir}. ", args, [args.workdir])
        else:
            seeds = runs.seeds.train_seeds(config, args.workdir, **options).results
            _say_end("", args, [f"{args.workdir}/seed_{seed}" for seed in seeds])
    except runs.process.Interrupted as stop:
        if runs.hosts.is_first_host():
            print(f"{stop}. The same command resumes from there.")
        sys.exit(128 + stop.signum)
    except runs.history.Diverged as error:
        sys.exit(f"error: {error}")


def fit_length(config: ml_collections.ConfigDict, args: argparse.Namespace) -> None:
    """Gives a run on few pictures smaller batches and more epochs, but where they were given."""
    import jax

    say = runs.display.say
    where = {"data_dir": args.data_dir, "device_budget_mb": args.device_budget_mb}
    task = runs.hosts.together(lambda: capsjax.data.tasks.create(**config.data, **where))
    images, held_out, devices = len(task.train.labels), len(task.validation), jax.device_count()
    training, before = config.training, config.training.to_dict()
    # A run that has begun keeps its own, on other devices and with more pictures.
    begun = runs.directory.begun(_files.absolute(args.workdir))
    if "training.batch_size" not in args.overrides:
        # A power of two, the same on 1, 2, 4 and 8 devices.
        few = 2 ** (max(SMALLEST_BATCH, images // BATCHES_OF_FEW).bit_length() - 1)
        few = min(training.batch_size, max(few // devices, 1) * devices)
        training.batch_size = begun.training.batch_size if begun else few
    if "training.epochs" not in args.overrides:
        steps = max(images // max(training.batch_size, 1), 1)
        long = max(training.epochs, -(-FEWEST_STEPS // steps))
        training.epochs = begun.training.epochs if begun else long
    if training.to_dict() != before:
        say(
            f"{'As it began' if begun else 'For so few pictures'}: {training.epochs} epochs in "
            f"batches of {training.batch_size}; --config.training.epochs and "
            "--config.training.batch_size set other numbers."
        )
    if 0 < held_out < FEW:
        say(
            f"Each of the {held_out} pictures held out is {1 / held_out:.0%} of the validation "
            "accuracy: neither it nor the best epoch chosen by it says much."
        )


def _came_out(history: "runs.history.History") -> str:
    records = [r for r in history.records if r["split"] == "validation"]
    if not records:
        return f"Trained for {history.epochs} epochs"
    best = max(records, key=lambda record: (record["accuracy"], record["step"]))
    return (
        f"Validation accuracy {records[-1]['accuracy']:.2%}; best {best['accuracy']:.2%}, of "
        f"epoch {best['epoch']} of {history.epochs}"
    )


def _say_end(came_out: str, args: argparse.Namespace, trained: list[str]) -> None:
    """Prints one line that says what came out and what comes next."""
    networks = ["--checkpoint", *trained] if len(trained) > 1 else [f"--checkpoint={trained[0]}"]
    words = shlex.join([*_cli.kept(args), *networks])
    runs.display.say(f"{came_out}Next: {_cli.command('evaluate')} {words}")


if __name__ == "__main__":
    try:
        _cli.run(parser(), main)
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        import jax

        # Before they are connected, counting the processes would start the accelerator.
        hosts = jax.process_count() if jax.distributed.is_initialized() else 1
        runs.process.fail(end.code.removeprefix("error: "), hosts=hosts)
