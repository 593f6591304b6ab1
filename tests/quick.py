"""For experiments/train.py --config=tests/quick.py:FILE.npz, a run of seconds."""

from tests.tiny import quick_config as get_config

__all__ = ["get_config"]
