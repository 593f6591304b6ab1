"""SHA-256 sums beside the files of a checkpoint: Orbax alone restores a flipped bit in silence."""

import hashlib
import json

from etils import epath

from capsjax.training import storage

SUMS = "sha256.json"
BLOCK = 1 << 20


def seal(directory: epath.Path) -> None:
    """Writes the sums of all files in `directory` into it, and all of it to the disk."""
    sums = {name: _sum(directory / name) for name in _files(directory)}
    (directory / SUMS).write_text(json.dumps(sums, indent=1))
    names = [*sums, SUMS]
    folders = {parent for name in names for parent in epath.Path(name).parents}
    for name in [*names, *folders]:
        storage.to_disk(directory / name)


def problem(directory: epath.Path) -> str | None:
    """What is wrong with a sealed directory, None if it is as it was when it was sealed."""
    try:
        sums = json.loads((directory / SUMS).read_text())
    except FileNotFoundError:
        return "it has no checksums: its save was interrupted, or it is not of capsjax"
    except (OSError, ValueError) as error:
        return f"its checksums cannot be read ({error})"
    files = set(_files(directory))
    if missing := sorted(sums.keys() - files):
        return f"{missing[0]} is missing"
    if surplus := sorted(files - sums.keys()):
        return f"{surplus[0]} is not of this checkpoint"
    for name, expected in sums.items():
        if _sum(directory / name) != expected:
            return f"{name} is damaged: its contents are not what was saved"
    return None


def _files(directory: epath.Path) -> list[str]:
    """Those of the items, which are folders: the files beside them are Orbax's marks."""
    return sorted(name for name in storage.files(directory) if "/" in name)


def _sum(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
