"""Where XLA's compilers for TPUs and NVIDIA GPUs are, and how they are fetched.

They come as wheels (libtpu; JAX's CUDA plugin with ptxas) and need no device. They stay out of the
environment: there JAX would take them for the sign of a device.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

FETCH = "python experiments/compile.py --fetch"
# JAX's own extras ask for the compilers that this version of JAX was made for.
EXTRAS = {"tpu": ("tpu", "libtpu"), "gpu": ("cuda12-local", "jax-cuda12-plugin")}
# The GPU's assembler, of any version: https://docs.nvidia.com/cuda/parallel-thread-execution.
ASSEMBLER = "nvidia-cuda-nvcc-cu12"

_dumps: Path | None = None


def folder() -> Path:
    """Returns the compilers' folder: `CAPSJAX_COMPILERS`, or one per JAX in ~/.cache/capsjax."""
    ours = f"~/.cache/capsjax/compilers/jax-{metadata.version('jax')}"
    return Path(os.environ.get("CAPSJAX_COMPILERS") or ours).expanduser()


def required(platform: str) -> Requirement:
    """Returns the wheel that the installed JAX asks for on `platform`, "tpu" or "gpu"."""
    extra, name = EXTRAS[platform]
    needs = [need for need in map(Requirement, metadata.requires("jax") or ()) if need.name == name]
    return next(n for n in needs if n.marker and n.marker.evaluate({"extra": extra}))


def check(platform: str) -> None:
    """Raises ValueError unless the compiler for `platform` is there and fits this JAX."""
    need, place = required(platform), folder() / platform
    found = [p.version for p in metadata.distributions(name=need.name, path=[str(place)])]
    if not any(need.specifier.contains(version, prereleases=True) for version in found):
        raise ValueError(
            f"the compiler for {platform}s, {need.name}{need.specifier}, is not in {place} (or "
            f"where CAPSJAX_COMPILERS says), but {' and '.join(found) or 'none'}: `{FETCH}` gets it"
        )


def _fits(platform: str) -> bool:
    try:
        check(platform)
    except ValueError:
        return False
    return True


def fetch() -> None:
    """Installs the compilers that are missing (0.7 GB for TPUs, 0.6 GB for GPUs)."""
    pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet")
    for platform in EXTRAS:
        if not _fits(platform):
            need, place = required(platform), folder() / platform
            wheels = [f"{need.name}{need.specifier}", *([ASSEMBLER] if platform == "gpu" else [])]
            shutil.rmtree(place, ignore_errors=True)  # of another version
            command = [*pip, "--no-cache-dir", "--target", str(place), *wheels]
            if subprocess.run(command, check=False).returncode:
                raise ValueError(f"pip could not install {', '.join(wheels)}")


def enable() -> None:
    """Lets JAX, which must not have been imported yet, find those compilers that are there.

    One of another version is left out: it would end the process with a fault.
    """
    global _dumps
    if "jax" in sys.modules:
        raise RuntimeError("compilers.enable() must be called before JAX is imported")
    _dumps = Path(tempfile.mkdtemp(prefix="capsjax-compile-"))
    atexit.register(shutil.rmtree, _dumps, ignore_errors=True)
    # An empty one means: as users compile. What a worker has from its parent names another folder.
    if (arguments := os.environ.get("LIBTPU_INIT_ARGS")) != "":
        # The kernels' instructions as they are at the end, and no earlier stage.
        arguments = (
            f"--xla_jf_dump_to={_dumps} --xla_jf_dump_llo_text=true "
            "--xla_jf_dump_llo_pass_label_regex=final_bundles"
        )
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        # Several processes may compile at once: without it libtpu takes a lock as for a device.
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        # Without these it asks a metadata server on which machine it is.
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5e-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "LIBTPU_INIT_ARGS": arguments,
        # There is no driver to ask for its version.
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
    }
    # A program from the cache would say nothing of how it was made.
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    if _fits("tpu"):
        os.environ["TPU_LIBRARY_PATH"] = str(folder() / "tpu/libtpu/libtpu.so")
    if _fits("gpu"):
        # A namespace in which JAX looks for plugins.
        sys.path.append(str(folder() / "gpu"))


def dumps() -> Path:
    """Returns the folder into which libtpu writes the instructions of what it compiles."""
    if _dumps is None:
        raise RuntimeError("compilers.enable() was not called before JAX was imported")
    return _dumps


def version(platform: str) -> str:
    """Returns the name and version of the compiler for `platform`, "tpu", "gpu" or "cpu"."""
    name = EXTRAS[platform][1] if platform in EXTRAS else "jaxlib"
    path = [str(folder() / platform)] if platform in EXTRAS else sys.path
    (package,) = list(metadata.distributions(name=name, path=path))[:1]
    return f"{name} {package.version}"
