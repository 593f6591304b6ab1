"""Compiled programs on disk, so that a second start does not compile them again."""

import jax

from capsjax.data.cache import cache_dir

# A few large programs take most of a start; the many small ones are not worth their files.
MIN_SECONDS = 0.2


def cache_on_disk() -> None:
    """Turns on JAX's persistent compilation cache, in `cache_dir()`/compiled.

    JAX's own settings go before: JAX_COMPILATION_CACHE_DIR is another place (an address such as
    gs://bucket/compiled too), JAX_ENABLE_COMPILATION_CACHE=false turns it off.
    """
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
