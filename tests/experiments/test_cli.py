"""What all scripts have in common."""

import ast
import errno
import os
import subprocess
import sys

import _cli
import pytest

from capsjax._files import write_atomically
from tests.processes import ROOT, printed

SCRIPTS = sorted(file.name for file in (ROOT / "experiments").glob("[!_]*.py"))


def parser():
    parser = _cli.parser("script")
    _cli.add_config(parser, required=False)
    return parser


def run(main, *argv):
    with pytest.raises(SystemExit) as stop:
        _cli.run(parser(), main, argv)
    return stop.value.code


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_version_and_a_wrong_option(script):
    """One process. It imports no JAX, which takes seconds."""
    program = """
import runpy, sys
for arguments in (["--help"], ["--version"], ["--nonsense"]):
    sys.argv[1:] = arguments
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        print(arguments[0], "ends with", stop.code)
print("jax" in sys.modules)
"""
    program = f"import sys; sys.argv = ['experiments/{script}']\n{program}"
    said = printed(program, PYTHONPATH=f"{ROOT / 'experiments'}{os.pathsep}{ROOT}")
    assert said.splitlines()[-1] == "False"
    ends = ("--help ends with 0", "--version ends with 0", "--nonsense ends with 2")
    for part in (*ends, "--quiet", "--version", "--import", "capsjax 0.", "Python 3."):
        assert part in said


def test_values_of_the_config_are_taken_out():
    seen = []
    argv = ["--config.a.b=1=2", "--config=f.py", "--config.c", "x y"]
    _cli.run(parser(), seen.append, argv)
    (args,) = seen
    assert args.config == "f.py"
    assert args.overrides == {"a.b": "1=2", "c": "x y"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--config.a=1"], "--config.a: there is no --config=FILE to change"),
        (["--config=f.py", "--config.a", "--config.b=1"], "--config.a: expected one argument"),
        (["surplus"], "unrecognized arguments: surplus"),
    ],
)
def test_a_wrong_command_line_ends_with_2(capsys, argv, message):
    assert run(print, *argv) == 2
    assert message in capsys.readouterr().err


def test_files_that_are_not_there():
    said = run(_cli.config_of, "--config=configs/digit.py")
    assert "configs/digit.py: there is no such file: did you mean 'digits'" in said
    assert "none.py: FileNotFoundError" in run(print, "--import=none.py")


def test_quiet(capsys):
    _cli.run(parser(), lambda args: print("words"), ["--quiet"])
    assert capsys.readouterr().out == ""
    _cli.run(parser(), lambda args: print("words"), [])
    assert capsys.readouterr().out == "words\n"


def test_what_is_not_installed_is_named():
    def main(args):
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    said = f"error: No module named 'matplotlib': pip install --editable '{ROOT}[experiments]'"
    assert run(main) == said


def test_files_are_written_whole(tmp_path, monkeypatch):
    file = tmp_path / "file.csv"
    write_atomically(file, "a\udcffé")
    assert file.read_text() == "a\\udcffé"

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert f"No space left on device: '{file}'" in run(lambda args: write_atomically(file, "new"))
    assert file.read_text() == "a\\udcffé"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_of_ones_own_is_run_first(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("MINE", "")
    (tmp_path / "beside.py").write_text("value = 3\n")
    (tmp_path / "mine.py").write_text("import os, beside\nos.environ['MINE'] = str(beside.value)\n")
    seen = []
    argv = [f"--import={tmp_path / 'mine.py'}"]
    _cli.run(parser(), lambda args: seen.append(os.environ["MINE"]), argv)
    assert seen == ["3"]


def test_no_file_imports_a_script():
    scripts = {script.removesuffix(".py") for script in SCRIPTS}
    for file in (ROOT / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None)
                names = {alias.name for alias in node.names if module in (None, "experiments")}
                assert not scripts & {module, *names}, file


def test_a_reader_that_has_enough_is_no_error():
    """Such as `… | head`."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "experiments/reproduce.py", "--list", "gu2021/table5"]
    ended = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")
