"""Bad command lines and config files of experiments/train.py: each is one error in plain words."""

import importlib.util
import shutil
import subprocess
import sys

import pytest

from tests.faults.commands import Done, assert_told, finish, quick, run, start
from tests.runs.several_hosts import free_port

pytestmark = pytest.mark.slow

VALUES = [
    ("optimizer.b1=2.0", "optimizer.b1 must be in [0, 1), got 2.0"),
    ("optimizer.b2=1.0", "optimizer.b2 must be in [0, 1), got 1.0"),
    ("optimizer.b1=nan", "optimizer.b1 must be a number, got 'nan'"),
    ("optimizer.learning_rate=1e999", "optimizer.learning_rate must be finite"),
    ("optimizer.clip_norm=1e999", "optimizer.clip_norm must be finite, got inf"),
    ("optimizer.learning_rate=1e300", "optimizer.learning_rate must be finite in float32"),
    ("optimizer.weight_decay=nan", "optimizer.weight_decay must be a number"),
    ("schedule.minimum=-1.0", "schedule.minimum must not be negative"),
    ("model.width=1e-9", "width must be at least 0.0009765625, got 1e-09"),
    ("model.width=1e999", "model.width must be finite"),
    ("model.strides=(1.5,)", "each of model.strides must be an integer, got 1.5"),
    ("model.strides=('a',)", "each of model.strides must be an integer, got 'a'"),
    ("seed=-1", "seeds must lie in [0, 4294967295], got -1"),
    ("seed=4294967296", "seeds must lie in [0, 4294967295], got 4294967296"),
    ("seed=99999999999999999999999", "seeds must lie in [0, 4294967295]"),
    ("training.epochs=99999999999999999999", "a run has at most 306,783,378 epochs"),
    ("training.epochs=a", "training.epochs must be an integer, got 'a'"),
    ("training.epoch=3", "epochs"),
    ("key_version=3", "key_version must be from 1 to 2, got 3"),
]


@pytest.mark.parametrize(("value", "message"), VALUES)
def test_values(npz, tmp_path, value, message):
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", f"--config.{value}")
    assert_told(done, message)
    assert not (tmp_path / "run").exists()


def test_the_last_of_several_seeds(npz, tmp_path):
    many = ("--config.seeds=4000000000", "--config.seed=4294967295")
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", *many)
    assert_told(done, "seeds must lie in [0, 4294967295]")
    seeds = ("--config.seed=4294967295", "--config.seeds=2")
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", *seeds)
    assert_told(done, "seeds must lie in [0, 4294967295], got 4294967295 to 4294967296")


def test_sizes_of_a_decoder(npz, tmp_path):
    for sizes in ("('a',)", "(2.5,)"):
        option = f"--config.model.decoder_features={sizes}"
        done = run("train.py", f"--config=tests/tiny.py:{npz}", f"--workdir={tmp_path}/run", option)
        assert_told(done, "each of model.decoder_features must be an integer")


def without(package):
    there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(there, reason=f"{package} is installed")


@pytest.mark.parametrize(
    ("workdir", "message"),
    [
        ("foo://x/y", "foo://x/y: unknown kind of address foo://"),
        ("http://x/y", "unknown kind of address http://"),
        pytest.param("s3://x/y", "s3:// needs pip install s3fs", marks=without("s3fs")),
        pytest.param("gs://x/y", "[gcs]'", marks=without("gcsfs")),
        ("a\udcff", "is not UTF-8"),
        ("/dev/null", "is not a directory"),
    ],
)
def test_work_directories(npz, workdir, message):
    assert_told(run("train.py", quick(npz), f"--workdir={workdir}"), message)


@pytest.mark.parametrize(
    ("script", "option"),
    [("evaluate.py", "--checkpoint"), ("evaluate.py", "--output"), ("predict.py", "--export")],
)
def test_addresses_of_other_scripts(tiny_run, script, option):
    options = {"--checkpoint": tiny_run} | {option: "foo://x/y"}
    done = run(script, *(f"{key}={value}" for key, value in options.items()))
    assert_told(done, "unknown kind of address foo://")


def test_names_with_square_brackets(npz, tmp_path, tiny_run):
    """Orbax could not read what it saves there; what is there can be evaluated."""
    directory = tmp_path / "a[b]c[/red]"
    done = run("train.py", quick(npz), f"--workdir={directory}")
    assert_told(done, f"workdir {directory}: Orbax takes")
    assert not directory.exists()
    shutil.copytree(tiny_run, directory)
    scores = run("evaluate.py", f"--checkpoint={directory}")
    assert f"of {directory}, step" in scores.out, scores.err


QUICK = "from tests.tiny import quick_config\ndef get_config(npz):\n    c = quick_config(npz)\n"
CONFIGS = [
    ("def get_config(\n", "config.py:1: SyntaxError: '(' was never closed"),
    ("\nraise KeyError('x')\n", "config.py:2: KeyError: 'x'"),
    ("def get_config():\n    return {}\n", "config.py: it has no variants, got"),
    ("def get_config(npz):\n    return {'a': 1}\n", "must return an ml_collections.ConfigDict"),
    ("def get_config(npz):\n    pass\n", "must return an ml_collections.ConfigDict"),
    ("def get_config(npz):\n    return 1 / 0\n", "config.py:2: ZeroDivisionError: division"),
    ("def get_config(npz):\n    raise ValueError('no such')\n", "config.py:2: no such"),
    ("x = 3\n", "config.py: there is no function get_config()"),
    ("get_config = 3\n", "config.py: TypeError: 3 is not a callable object"),
    (QUICK + "    c.training.epocs = 3\n    return c\n", "config.py:4: "),
    (QUICK + "    c.unlock(); c.training.epocs = 3\n    return c\n", "no option 'training.epocs'"),
    (QUICK + "    c.unlock(); del c.training\n    return c\n", "has no section 'training'"),
    (QUICK + "    c.unlock(); del c.data\n    return c\n", "has no section 'data'"),
    (QUICK + "    c.unlock(); del c.model.name\n    return c\n", "has no model.name, a string"),
    (QUICK + "    c.unlock(); del c.optimizer.name\n    return c\n", "has no optimizer.name"),
    (QUICK + "    c.unlock(); c[3] = 4\n    return c\n", "keys of the config must be strings"),
    (QUICK + "    c.training.epochs = 'many'\n    return c\n", "config.py:4: TypeError"),
    (QUICK + "    c = c.to_dict(); c['seed'] = 'a'\n    import ml_collections\n"
     "    return ml_collections.ConfigDict(c)\n", "seed must be an integer, got 'a'"),
    (QUICK + "    c.unlock(); c.training.again = c.training\n    return c\n", "holds itself"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), CONFIGS)
def test_config_files(npz, tmp_path, text, message):
    (tmp_path / "config.py").write_text(text)
    config = f"--config={tmp_path / 'config.py'}:{npz}"
    assert_told(run("train.py", config, f"--workdir={tmp_path / 'run'}"), message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("configs/nothing.py", "there is no such file"),
        ("configs", "not a file"),
        ("/dev/zero", "not a file"),
        ("configs/digits.py:nonsense", "configs/digits.py: it has no variants, got 'nonsense'"),
        ("configs/choi2019.py:nonsense", "after the colon comes mnist"),
        ("configs/tsai2020_cifar.py:nonsense", "unknown model 'nonsense'"),
    ],
)
def test_configs_and_variants(tmp_path, config, message):
    assert_told(run("train.py", f"--config={config}", f"--workdir={tmp_path / 'run'}"), message)


def test_a_variant_that_is_left_out(tmp_path):
    (tmp_path / "config.py").write_text("def get_config(which):\n    pass\n")
    config = f"--config={tmp_path / 'config.py'}"
    assert_told(run("train.py", config, f"--workdir={tmp_path / 'run'}"), "argument: 'which'")


def test_sections_that_are_not_there(npz, tmp_path):
    text = QUICK + "    c.unlock(); del c.data\n    return c\n"
    (tmp_path / "config.py").write_text(text)
    config = f"--config={tmp_path / 'config.py'}:{npz}"
    done = run("train.py", config, f"--workdir={tmp_path}", "--config.data.name=mnist")
    assert_told(done, "the config has no section 'data'")


def test_a_binary_config(tmp_path):
    (tmp_path / "config.py").write_bytes(bytes(range(256)))
    config = f"--config={tmp_path / 'config.py'}"
    assert_told(
        run("train.py", config, f"--workdir={tmp_path / 'run'}"), "config.py:1: SyntaxError"
    )


@pytest.mark.parametrize("port", ["0", "99999", "-1", "a", ""])
def test_ports(npz, tmp_path, port):
    hosts = (f"--coordinator_address=127.0.0.1:{port}", "--num_processes=2", "--process_id=0")
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", *hosts)
    assert_told(done, "with a port from 1 to 65535")


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
    ("port", "process_id", "message"),
    [
        (1, 1, "process 0 did not answer at 127.0.0.1:1 within 5 s"),
        (None, 0, "error: not all 2 processes of the run came within 5 s"),
    ],
    ids=["the first", "the second"],
)
def test_hosts_that_do_not_come_are_not_waited_for_ever(port, process_id, message):
    program = (
        "from capsjax.runs import hosts, process\n"
        "hosts.CONNECT_SECONDS = 5\n"
        f"try:\n    hosts.connect('127.0.0.1:{port or free_port()}', 2, {process_id})\n"
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
