"""Programs in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed(program, folder=ROOT, **environment):
    """What a program prints that runs in `folder`, with more variables of the environment."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def start_training(*arguments, **options):
    """Starts experiments/train.py with one device; the options are those of Popen."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "XLA_FLAGS": ""}
    words = [sys.executable, "experiments/train.py", *arguments]
    return subprocess.Popen(words, cwd=ROOT, env=environment, text=True, **options)
