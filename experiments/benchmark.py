"""Measures time and memory on this machine.

  python experiments/benchmark.py routing --rows b c --repeats 7 --output=routing.json
  python experiments/benchmark.py routing --device   # on a GPU or TPU: are its kernels right?
  python experiments/benchmark.py pytorch            # beside PyTorch, which you install
  python experiments/benchmark.py models --names sabour2017_capsnet choi2019_mnist

docs/benchmarks.md and docs/models.md have our results. experiments/train.py prints how fast
your own network trains.
"""

import argparse
from importlib import import_module

import _cli


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    subjects = parser.add_subparsers(required=True, dest="subject")

    routing = subjects.add_parser("routing", help="routing against a textbook version")
    text = "the sizes, listed in docs/benchmarks.md; default: all"
    routing.add_argument("--rows", nargs="+", choices="abcde", default=list("abcde"), help=text)
    text = "on a GPU or TPU: check every kernel, time all forms, and write device.json"
    routing.add_argument("--device", action="store_true", help=text)
    pytorch = subjects.add_parser("pytorch", help="procedures against PyTorch (pip install torch)")
    models = subjects.add_parser("models", help="a training step of every network")
    models.add_argument("--names", action="extend", nargs="+", metavar="NAME", help="default: all")
    models.add_argument("--batch_size", type=int, default=8, help="images in a batch; default: 8")
    for subject in (routing, pytorch, models):
        text = "calls to take the median of; default: 3"
        subject.add_argument("--repeats", type=int, default=3, help=text)
        subject.add_argument("--output", type=_cli.file(".json"), help="write everything to it")
    return parser


def main(args: argparse.Namespace) -> None:
    """Measures and prints."""
    for name in ("repeats", "batch_size"):
        if (value := getattr(args, name, None)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    import_module(f"_benchmark.{args.subject}").run(args)


if __name__ == "__main__":
    _cli.run(parser(), main)
