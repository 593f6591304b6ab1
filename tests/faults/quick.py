"""For experiments/train.py --config=tests/faults/quick.py:FILE.npz"""

from tests.tiny import quick_config

get_config = quick_config
