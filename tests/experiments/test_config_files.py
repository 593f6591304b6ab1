"""Config files of one's own that are wrong: an error names the file's line."""

import re

import pytest
import train

BASE = "from tests.tiny import quick_config\ndef get_config(npz):\n    c = quick_config(npz)\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def get_config(\n", "config.py:1: SyntaxError: '(' was never closed"),
        ("\nraise KeyError('x')\n", "config.py:2: KeyError: 'x'"),
        ("def get_config(npz):\n    pass\n", "must be an ml_collections.ConfigDict, got None"),
        ("def get_config(npz):\n    return 1 / 0\n", "config.py:2: ZeroDivisionError: division"),
        ("x = 3\n", "config.py: there is no function get_config()"),
        (BASE + "    c.training.epocs = 3\n    return c\n", "config.py:4: "),
        (BASE + "    c.unlock()\n    del c.training\n    return c\n", "has no section 'training'"),
        (BASE + "    c.training.epochs = 'many'\n    return c\n", "config.py:4: TypeError"),
    ],
)
def test_config_files(fails, npz, tmp_path, text, message):
    (tmp_path / "config.py").write_text(text)
    config = f"--config={tmp_path / 'config.py'}:{npz}"
    assert re.search(re.escape(message), fails(train, config, f"--workdir={tmp_path / 'run'}"))
    assert not (tmp_path / "run").exists()
