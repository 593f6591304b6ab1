"""Whether a checkpoint is as it was saved: it contains checksums of all its files."""

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence

from etils import epath

from capsjax import _files

SUMS = "sha256.json"  # in each checkpoint, beside its items


def newest_intact(folder: epath.Path, steps: Sequence[int]) -> int:
    """Returns the first of `steps` saved intact; Orbax alone would not notice a flipped bit."""
    problems: list[str] = []
    for step in steps:
        directory = folder / str(step)
        wrong = _damage(directory)
        if wrong is None:
            if problems:
                said = f"{'; '.join(problems)}; going back to step {step}"
                warnings.warn(said, RuntimeWarning, stacklevel=4)
            return step
        problems.append(f"the checkpoint {directory} cannot be used: {wrong}")
    raise ValueError("; ".join(problems) + ". Nothing was changed")


def seal(directory: epath.Path) -> None:
    """Writes the checksums of all files in `directory` into it, and syncs all of it to disk."""
    sums = _checksums(directory)
    (directory / SUMS).write_text(json.dumps(sums, indent=1))
    if _files.is_local(directory):
        names = [*sums, SUMS]
        folders = {parent for name in names for parent in epath.Path(name).parents}
        for name in [*names, *folders]:
            _files.sync(directory / name)


def _damage(directory: epath.Path) -> str | None:
    """Says what is wrong with a sealed directory; None if nothing changed since it was sealed."""
    try:
        sums = json.loads((directory / SUMS).read_text())
    except (FileNotFoundError, ValueError):
        return "it has no checksums: its save was interrupted, or it was not made by capsjax"
    found = _checksums(directory)
    for name in sorted(sums.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing"
        if name in sums and found[name] != sums[name]:
            return f"{name} is damaged: its contents are not what was saved"
        # Hidden files, such as .DS_Store, are left by programs that show a folder.
        if name not in sums and not name.rpartition("/")[2].startswith("."):
            return f"{name} does not belong to this checkpoint"
    return None


def _checksums(directory: epath.Path) -> dict[str, str]:
    """Returns the SHA-256 of the items' files, which are in folders; those beside are Orbax's."""
    sums = {}
    for name in sorted(name for name in _relative_paths(directory) if "/" in name):
        with (directory / name).open("rb") as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def _relative_paths(directory: epath.Path) -> Iterator[str]:
    # Not with `walk` or `glob`, which epath does not offer alike for all file systems.
    for path in directory.iterdir():
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in _relative_paths(path))
        else:
            yield path.name
