"""Programs compiled for accelerators on a machine that has none: `experiments/compile.py`."""
