import jax
import pytest

from capsjax.runs import loop
from capsjax.runs.process import cache_programs
from tests.tiny import assert_same

NAMES = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture
def settings():
    """JAX's settings, put back after the test; programs are compiled anew, or read from disk."""
    from jax.experimental.compilation_cache import compilation_cache

    before = {name: getattr(jax.config, name) for name in NAMES}

    def use(**values):
        for name, value in values.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        jax.clear_caches()

    yield use
    use(**before)


def test_a_program_from_disk_gives_the_same_bits(settings, monkeypatch, tmp_path, quick):
    quick.training.epochs = 1
    theirs = jax.config.jax_compilation_cache_dir
    assert theirs is not None  # the tests' own, from the environment
    cache_programs()
    assert jax.config.jax_compilation_cache_dir == theirs
    monkeypatch.setenv("CAPSJAX_CACHE_DIR", str(tmp_path))
    settings(jax_compilation_cache_dir=None, jax_enable_compilation_cache=True)
    cache_programs()
    hits = []

    def listen(event, **_):
        hits.append(event)

    def train(name):
        return loop.train(quick, tmp_path / name, devices=jax.devices()[:1])

    compiled = train("first")
    files = {path: path.read_bytes() for path in (tmp_path / "compiled").glob("*-cache")}
    assert files
    jax.monitoring.register_event_listener(listen)
    settings()
    assert_same(train("second"), compiled)
    jax.monitoring.unregister_event_listener(listen)
    assert "/jax/compilation_cache/cache_hits" in hits
    assert {path: path.read_bytes() for path in files} == files
