"""Eight virtual CPU devices for all tests, and nothing of the user's is touched."""

import importlib.metadata
import inspect
import os
import shutil
import sys
import tempfile
from pathlib import Path

import hypothesis
import jaxtyping
import pytest

# pytest-xdist's workers inherit the environment of the process that started them.
WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not WORKER:
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8"
    # Decoded data and compiled programs: shared by all tests and the scripts they start.
    cache = tempfile.mkdtemp(prefix="capsjax-tests-")
    os.environ["CAPSJAX_CACHE_DIR"] = cache
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(cache, "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# The same examples in every run: a failure is a change of the code, and can be repeated.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")

# What the caller of pytest has set, for the tests on real data.
REAL_DATA_DIR = os.environ.get("CAPSJAX_DATA_DIR", "")

MOST_MAPS = 30_000  # Linux allows 65,530

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-datasets")


def pytest_configure(config: pytest.Config) -> None:
    """Sets up what JAX reads from the environment when it is imported."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
    if config.option.markexpr == "accelerators":
        from _compile import compilers

        compilers.enable()
    else:
        # Most tests run once what they compile: without LLVM's optimizations the suite takes a
        # third less time. `make test-all` compiles as users do.
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def pytest_report_header() -> str:
    versions = (f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return f"versions: {', '.join(versions)}"


def pytest_unconfigure() -> None:
    if not WORKER:
        shutil.rmtree(cache, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Thousands exhaust what the system lets one process map (vm.max_map_count): LLVM crashes."""
    import jax

    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def checked_annotations(request):
    """Shapes and types are checked against their annotations, but not where errors are expected.

    Such tests pass what the annotations forbid, to see what the functions themselves say.
    """
    expects_errors = "pytest.raises(" in inspect.getsource(request.function)
    symbolic = request.node.get_closest_marker("symbolic_sizes") is not None
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", before or expects_errors or symbolic)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(autouse=True)
def registered_networks():
    """Networks that a test registers are forgotten after it."""
    from capsjax import models

    before = dict(models._REGISTERED)
    yield
    models._REGISTERED.clear()
    models._REGISTERED.update(before)


@pytest.fixture
def compiled_for(request):
    """`_compile.crosscompile.compile_for`: a function compiled for "v5e:2x2", "h100" and the like.

    For tests marked `accelerators`; see `_compile.crosscompile.Compiled` for what it gives. The
    test is skipped where the compilers are not there.
    """
    from _compile import compilers

    assert request.node.get_closest_marker("accelerators"), "mark the test `accelerators`"
    if compilers._dumps is None:
        pytest.skip("compilers are found only with exactly `-m accelerators`")
    for platform in ("tpu", "gpu"):
        try:
            compilers.check(platform)
        except ValueError as error:
            pytest.skip(str(error))
    from _compile.crosscompile import compile_for

    return compile_for


@pytest.fixture
def real_mnist_dir(monkeypatch: pytest.MonkeyPatch) -> str:
    """CAPSJAX_DATA_DIR as the caller of pytest has set it, where MNIST lies in it."""
    if not any((Path(d) / "mnist").is_dir() for d in REAL_DATA_DIR.split(os.pathsep) if d):
        pytest.skip("CAPSJAX_DATA_DIR names no directory with mnist")
    monkeypatch.setenv("CAPSJAX_DATA_DIR", REAL_DATA_DIR)
    return REAL_DATA_DIR


@pytest.fixture(scope="session")
def npz(tmp_path_factory):
    """Real 8×8 digits as a user's npz file: 200 to train on, 50 to test on."""
    from tests.tiny import write_digits

    return write_digits(tmp_path_factory.mktemp("data") / "digits.npz")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, npz):
    """The directory of a finished run of `tiny_config`, on one device. Not to be changed."""
    import jax

    from capsjax.runs.loop import train
    from tests.tiny import tiny_config

    directory = tmp_path_factory.mktemp("tiny") / "run"
    train(tiny_config(npz), directory, devices=jax.devices()[:1])
    return directory
