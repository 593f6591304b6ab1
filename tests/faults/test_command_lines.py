"""Bad command lines and config files of experiments/train.py: each is one error in plain words."""

import importlib.util
import shutil
import subprocess
import sys

import pytest

from tests.faults.commands import Done, assert_told, finish, quick, run, start
from tests.runs.several_hosts import free_port

pytestmark = pytest.mark.slow

# Others: tests/training/test_config.py and test_overrides.py, tests/runs/test_mistakes.py.
VALUES = [
    ("optimizer.b2=1.0", "optimizer.b2 must be in [0, 1), got 1.0"),
    ("optimizer.b1=nan", "optimizer.b1 must be a number, got 'nan'"),
    ("optimizer.learning_rate=1e999", "optimizer.learning_rate must be finite"),
    ("schedule.minimum=-1.0", "schedule.minimum must not be negative"),
    ("model.width=1e-9", "width must be at least 0.0009765625, below which"),
    ("model.width=1e999", "model.width must be finite"),
    ("model.strides=(1.5,)", "each of model.strides must be an integer, got 1.5"),
    ("model.strides=('a',)", "each of model.strides must be an integer, got 'a'"),
    ("seed=4294967296", "seeds must lie in [0, 4294967295], got 4294967296"),
    ("seed=99999999999999999999999", "seeds must lie in [0, 4294967295]"),
    ("training.epochs=99999999999999999999", "a run has at most 306,783,378 epochs"),
    ("model.kernel_size=100", "too small for windows of kernel_size 100"),
    ("seed=4294967295 --config.seeds=4000000000", "seeds must lie in [0, 4294967295]"),
    (
        "seed=4294967295 --config.seeds=2",
        "seeds must lie in [0, 4294967295], got 4294967295 to 4294967296",
    ),
]
QUICK = "train.py --config=tests/quick.py:{npz} --workdir="
TINY = "train.py --config=tests/tiny.py:{npz} --workdir={tmp}/run --config.model.decoder_features="
CLUSTER = QUICK + "{tmp}/run --num_processes=2 --process_id=0 --coordinator_address=127.0.0.1:"


def without(package, command, message):
    there = importlib.util.find_spec(package) is not None
    return pytest.param(
        command, message, marks=pytest.mark.skipif(there, reason=f"{package} is installed")
    )


COMMANDS = [
    *((f"{QUICK}{{tmp}}/run --config.{value}", message) for value, message in VALUES),
    (f"{TINY}('a',)", "each of model.decoder_features must be an integer"),
    (f"{TINY}(2.5,)", "each of model.decoder_features must be an integer"),
    (f"{QUICK}foo://x/y", "foo://x/y: unknown kind of address foo://"),
    (f"{QUICK}http://x/y", "unknown kind of address http://"),
    without("s3fs", f"{QUICK}s3://x/y", "s3:// needs pip install s3fs"),
    without("gcsfs", f"{QUICK}gs://x/y", "[gcs]'"),
    (f"{QUICK}a\udcff", "is not UTF-8"),
    (f"{QUICK}/dev/null", "is not a directory"),
    *((f"{CLUSTER}{port}", "a port from 1 to 65535") for port in ("-1", "a", "")),
    ("evaluate.py --checkpoint=foo://x/y", "unknown kind of address foo://"),
    ("evaluate.py --checkpoint={run} --output=foo://x/y", "unknown kind of address foo://"),
    ("predict.py --checkpoint={run} --export=foo://x/y", "unknown kind of address foo://"),
    *(
        (f"train.py --workdir={{tmp}}/run --config={config}", message)
        for config, message in [
            ("configs/nothing.py", "there is no such file"),
            ("configs", "not a file"),
            ("/dev/zero", "not a file"),
            ("configs/digits.py:nonsense", "digits.py: it has no variants, got 'nonsense'"),
            ("configs/choi2019.py:nonsense", "after the colon comes mnist"),
            ("configs/tsai2020_cifar.py:nonsense", "unknown model 'nonsense'"),
        ]
    ),
    ("data.py npz:{npz} --out={tmp}", "is a directory: name a file in it"),
    ("data.py npz:{npz} --export={tmp}", "is a directory: name a file in it"),
    ("compile.py --config=configs/digits.py --target=v5e --output={tmp}", "is a directory: name a"),
    ("evaluate.py --checkpoint={run} --batch_size=-32", "--batch_size: must be a whole number"),
    ("evaluate.py --checkpoint={npz}", "{npz}"),  # it exists, and is not said not to
]


@pytest.mark.parametrize(("command", "message"), COMMANDS)
def test_commands(npz, tiny_run, tmp_path, command, message):
    places = {"npz": npz, "run": tiny_run, "tmp": tmp_path}
    done = run(*(word.format(**places) for word in command.split()))
    assert_told(done, message.format(**places) if message == "{npz}" else message)
    assert "does not exist" not in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("platform", ["nope", "cuda"])
def test_devices_that_are_not_there(tiny_run, platform):
    done = run("evaluate.py", f"--checkpoint={tiny_run}", environment={"JAX_PLATFORMS": platform})
    assert_told(done, f"JAX_PLATFORMS={platform}: JAX finds no such device here; unset it")


def test_names_with_square_brackets(npz, tmp_path, tiny_run):
    """Orbax could not read what it saves there; what is there can be evaluated."""
    directory = tmp_path / "a[b]c[/red]"
    done = run("train.py", quick(npz), f"--workdir={directory}")
    assert_told(done, f"workdir {directory}: Orbax takes")
    assert not directory.exists()
    shutil.copytree(tiny_run, directory)
    scores = run("evaluate.py", f"--checkpoint={directory}")
    assert f"of {directory}, step" in scores.out, scores.err


BASE = "from tests.tiny import quick_config\ndef get_config(npz):\n    c = quick_config(npz)\n"
CONFIGS = [
    (bytes(range(256)).decode("latin-1"), "config.py:1: SyntaxError"),
    ("def get_config(\n", "config.py:1: SyntaxError: '(' was never closed"),
    ("\nraise KeyError('x')\n", "config.py:2: KeyError: 'x'"),
    ("def get_config():\n    return {}\n", "config.py: it has no variants, got"),
    ("def get_config(npz):\n    return {'a': 1}\n", "must return an ml_collections.ConfigDict"),
    ("def get_config(npz):\n    pass\n", "must return an ml_collections.ConfigDict"),
    ("def get_config(npz):\n    return 1 / 0\n", "config.py:2: ZeroDivisionError: division"),
    ("def get_config(npz):\n    raise ValueError('no such')\n", "config.py:2: no such"),
    ("x = 3\n", "config.py: there is no function get_config()"),
    ("get_config = 3\n", "config.py: TypeError: 3 is not a callable object"),
    (BASE + "    c.training.epocs = 3\n    return c\n", "config.py:4: "),
    (BASE + "    c.unlock(); c.training.epocs = 3\n    return c\n", "no option 'training.epocs'"),
    (BASE + "    c.unlock(); del c.training\n    return c\n", "has no section 'training'"),
    (BASE + "    c.unlock(); del c.data\n    return c\n", "has no section 'data'"),
    (BASE + "    c.unlock(); del c.model.name\n    return c\n", "has no model.name, a string"),
    (BASE + "    c.unlock(); del c.optimizer.name\n    return c\n", "has no optimizer.name"),
    (BASE + "    c.training.epochs = 'many'\n    return c\n", "config.py:4: TypeError"),
    (BASE + "    c = c.to_dict(); c['seed'] = 'a'\n    import ml_collections\n"
     "    return ml_collections.ConfigDict(c)\n", "seed must be an integer, got 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message", "variant"),
    [
        *((text, message, ":{npz}") for text, message in CONFIGS),
        ("def get_config(which):\n    pass\n", "argument: 'which'", ""),
        (
            BASE + "    c.unlock(); del c.data\n    return c\n",
            "the config has no section 'data'",
            ":{npz} --config.data.name=mnist",
        ),
    ],
)
def test_config_files(npz, tmp_path, text, message, variant):
    (tmp_path / "config.py").write_bytes(text.encode("latin-1"))
    words = f"--config={tmp_path / 'config.py'}{variant.format(npz=npz)}".split()
    assert_told(run("train.py", *words, f"--workdir={tmp_path / 'run'}"), message)
    assert not (tmp_path / "run").exists()


def test_a_file_of_ones_own_that_fails(tmp_path):
    (tmp_path / "mine.py").write_text("import os\nraise KeyError('x')\n")
    done = run("data.py", "digits", f"--import={tmp_path / 'mine.py'}")
    assert_told(done, f"{tmp_path}/mine.py:2: KeyError: 'x'")


def test_a_host_with_another_config_ends_all(npz, tmp_path):
    address = f"--coordinator_address=127.0.0.1:{free_port()}"
    processes = [
        start(
            *("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", address),
            *("--num_processes=2", f"--process_id={i}", f"--config.training.batch_size={size}"),
        )
        for i, size in enumerate((24, 12))
    ]
    first, second = (finish(process) for process in processes)
    assert_told(first, "process 1 was not started with the config of process 0")
    assert_told(second, "training.batch_size: 24 → 12")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("address", "process_id", "message"),
    [
        ("127.0.0.1:1", 1, "process 0 did not answer at 127.0.0.1:1 within 5 s"),
        ("none.invalid:1", 1, "process 0 did not answer at none.invalid:1 within 15 s"),
        ("127.0.0.1:{}", 0, "error: not all 2 processes of the run came within 5 s"),
    ],
    ids=["the first", "a name without a machine", "the second"],
)
def test_hosts_that_do_not_come_are_not_waited_for_ever(address, process_id, message):
    program = (
        "from capsjax.runs import hosts, process\n"
        "hosts.CONNECT_SECONDS = 5\n"
        f"try:\n    hosts.connect('{address.format(free_port())}', 2, {process_id})\n"
        "except OSError as error:\n    process.fail(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert_told(Done(done.returncode, done.stdout, done.stderr), message)


def test_two_processes_with_one_id():
    address = f"'127.0.0.1:{free_port()}'"
    program = (
        "from capsjax.runs import hosts\n"
        "hosts.CONNECT_SECONDS = 15\n"
        f"hosts.connect({address}, 3, NUMBER)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program.replace("NUMBER", str(number))],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1, 1)
    ]
    first, *both = (process.communicate(timeout=120)[1] for process in processes)
    assert all(process.returncode for process in processes)
    assert "each with a process_id of its own" in first
    # JAX ends the one that came first, in its own words.
    assert any("newer incarnation" in error for error in both)
    assert any("each with a process_id of its own" in error for error in both)
