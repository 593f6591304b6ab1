"""What all scripts have in common."""

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path

import _cli
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    file.name for file in (ROOT / "experiments").glob("*.py") if not file.name.startswith("_")
)


def test_what_scripts_share_imports_no_script():
    scripts = {Path(script).stem for script in SCRIPTS}
    for file in (ROOT / "experiments").rglob("*.py"):
        if file.name not in SCRIPTS:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert not scripts & {*found, getattr(node, "module", None)}, file


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
    """One process. It imports no JAX, which takes seconds, but to list the options of a config."""
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
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['experiments/{script}']\n{program}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'experiments'}{os.pathsep}{ROOT}"},
        text=True,
        capture_output=True,
        check=True,
    )
    assert "--help ends with 0" in done.stdout
    assert "--version ends with 0" in done.stdout
    assert "--nonsense ends with 2" in done.stdout
    assert done.stdout.splitlines()[-1] == str("--config.OPTION=VALUE" in done.stdout)
    assert ("options of a config" in done.stdout) == (script == "train.py")
    for option in ("--quiet", "--version", "--import"):
        assert option in done.stdout
    assert "capsjax 0." in done.stdout
    assert "Python 3." in done.stdout


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
        (["--config=f.py", "--config.a"], "argument --config.a: expected one argument"),
        (["--config=f.py", "--config.a", "--config.b=1"], "--config.a: expected one argument"),
        (["surplus"], "unrecognized arguments: surplus"),
        (["--import=none.py"], "--import: no file none.py"),
    ],
)
def test_a_wrong_command_line_ends_with_2(capsys, argv, message):
    assert run(print, *argv) == 2
    assert message in capsys.readouterr().err


def test_a_config_that_is_not_there(capsys):
    assert run(_cli.config_of, "--config=configs/digit.py") == 2
    assert (
        "configs/digit.py: there is no such file: did you mean 'digits'" in capsys.readouterr().err
    )


def test_quiet(capsys):
    _cli.run(parser(), lambda args: print("words"), ["--quiet"])
    assert capsys.readouterr().out == ""
    _cli.run(parser(), lambda args: print("words"), [])
    assert capsys.readouterr().out == "words\n"


def test_what_is_not_installed_is_named():
    def main(args):
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    assert run(main) == (
        f"error: matplotlib is not installed: pip install --editable '{ROOT}[experiments]'"
    )


def test_files_are_written_whole(tmp_path, monkeypatch):
    file, link = tmp_path / "file.csv", tmp_path / "link.csv"
    link.symlink_to(file)
    _cli.save(link, "a\udcffé")
    assert link.is_symlink()
    assert file.read_text() == "a\\udcffé"

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    parser, main = _cli.parser(""), lambda args: _cli.save(file, "new")
    with pytest.raises(SystemExit, match=f"error: {file}: No space left on device"):
        _cli.run(parser, main, [])
    assert file.read_text() == "a\\udcffé"
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    _cli.save(tmp_path / "pipe", "words")
    assert os.read(descriptor, 99) == b"words"
    os.close(descriptor)
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_of_ones_own_is_run_first(tmp_path):
    (tmp_path / "beside.py").write_text("value = 3\n")
    (tmp_path / "mine.py").write_text("import os, beside\nos.environ['MINE'] = str(beside.value)\n")
    seen = []
    try:
        argv = [f"--import={tmp_path / 'mine.py'}"]
        _cli.run(parser(), lambda args: seen.append(os.environ["MINE"]), argv)
    finally:
        os.environ.pop("MINE", None)
        sys.path.remove(str(tmp_path))
    assert seen == ["3"]
