"""Preparing a dataset that is not there; without TensorFlow, an error that says how to."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from capsjax._extras import extra, install
from capsjax._names import nearest
from capsjax.data.tfds import prepared_names


def download(name: str, directories: Sequence[Path], known: Sequence[str]) -> None:
    """Downloads and prepares a TFDS set, with TensorFlow, into the first of `directories`.

    `known` are names that are known without asking TFDS.
    """
    candidates = [*known, *prepared_names(list(directories)), *_tfds_names()]
    base_name = name.partition(":")[0].partition("/")[0]
    if base_name not in candidates:
        raise ValueError(_unknown(name, candidates))
    if not _installed("tensorflow"):
        places = [f"  {d}" + ("" if d.is_dir() else " (no such directory)") for d in directories]
        raise FileNotFoundError(
            f"name: dataset {name!r} is not prepared in\n"
            + "\n".join(places)
            + "\nEither name a directory that holds it (CAPSJAX_DATA_DIR, or data_dir), or "
            f"install what prepares it, {install('prepare')}, and load it again where there is a "
            f"network: it is then downloaded into {directories[0]}"
        )
    with extra("data"):
        import tensorflow_datasets as tfds

    # A format that can be read without TensorFlow.
    builder = tfds.builder(name, data_dir=directories[0], file_format="array_record")
    builder.download_and_prepare()


def _unknown(name: str, candidates: Sequence[str]) -> str:
    message = f"name: unknown dataset {name!r}"
    if name and Path(name).expanduser().is_dir():
        return f"{message}; for a directory of images write 'folder:{name}'"
    if Path(name).expanduser().is_file():
        return f"{message}; for an .npz file write 'npz:{name}'"
    return (
        f"{message}; expected 'digits', the name of a TFDS dataset, folder:PATH, npz:PATH or "
        f"affnist:PATH: {nearest(name, candidates)}"
    )


def _tfds_names() -> list[str]:
    if not _installed("tensorflow_datasets"):
        return []
    with extra("data"):
        import tensorflow_datasets as tfds

    return tfds.list_builders(with_community_datasets=False)


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
