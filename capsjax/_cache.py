"""Where decoded data and compiled programs are kept between runs."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Returns CAPSJAX_CACHE_DIR, by default ~/.cache/capsjax."""
    return Path(os.environ.get("CAPSJAX_CACHE_DIR") or "~/.cache/capsjax").expanduser()
