"""docs/accelerators.md, and the tables of docs/scaling.md, from the records of the list."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import _cli

from _compile.catalogue import ROOT, SCALED_BATCHES, SCALES
from _compile.targets import CHIPS_BY_NAME, Chip
from capsjax._files import write_atomically

DOCS = ROOT / "docs"
RECORDS = DOCS / "accelerators/records.json"  # of the list
# What a reader needs to know besides, by hand: to be read again when the list is compiled anew.
NOTES = DOCS / "accelerators/notes.txt"
Record = Mapping[str, Any]

PAGE = Path(__file__).with_name("accelerators.md").read_text(encoding="utf-8").rstrip()


def in_short(record: Record) -> str:
    """Returns a few words for a line of progress."""
    for why, (*_, said) in UNFINISHED.items():
        if why in record:
            return said.format(record[why])
    cycles = record["estimated"]["cycles"]
    said = "" if cycles is None else f", {cycles / 1e6:.2f} M cycles"
    total = _mb(record["memory"]["total"])
    return f"{record['compile_cpu_seconds']:.0f} CPU s, {total} MB{said}"


def write(records: Sequence[Record]) -> None:
    """Writes the pages and the records behind them."""
    # Without what only a person at the terminal looks at.
    left_out = {"largest_buffers", "kernels", "sources", "compile_seconds"}
    kept = [{k: v for k, v in record.items() if k not in left_out} for record in records]
    write_atomically(RECORDS, json.dumps(kept, indent=1) + "\n")
    write_atomically(DOCS / "accelerators.md", accelerators(records, NOTES.read_text()))
    file = DOCS / "scaling.md"
    write_atomically(file, in_place(file.read_text(), scaling(records)))


def accelerators(records: Sequence[Record], notes: str = "") -> str:
    """Returns the page, as Markdown; `notes` are lines of the list at its head."""
    done = [record for record in records if "commit" in record]
    routing, networks = (
        [record for record in records if record["group"] == group]
        for group in ("routing", "networks")
    )
    largest = [r for r in networks if r in done and r["target"] == "v5e:2x2"]
    return PAGE.format(
        notes=notes,
        commits=", ".join(sorted({record["commit"] for record in done})),
        jax=done[0]["jax"],
        compilers=", ".join(sorted({record["compiler"] for record in done})),
        routing=_table(routing),
        networks=_table(networks),
        largest="".join(map(_largest, largest)),
    )


def _table(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        cells = [_cell(column, record) for column in COLUMNS]
        rows.append([f"`{record['name']}`, {record['program']}", record["target"], *cells])
    heads = ("program", "target", *COLUMNS)
    return _cli.markdown_table(heads, rows, (0, 1, heads.index("collectives"))) + "\n"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f}"


def _collectives(record: Record) -> str:
    each = record["collectives"].items()
    said = (f"{c['number']} {kind} of {_mb(c['bytes'])} MB" for kind, c in each)
    return ", ".join(said) or "none"


def _estimated(record: Record, name: str, scale: float, form: str) -> str:
    value = record["estimated"][name]
    return "" if value is None else format(value / scale, form)


COLUMNS: Mapping[str, Callable[[Record], str]] = {
    "batch": lambda r: f"{r['estimated']['images']:,}",
    "memory, MB": lambda r: _mb(r["memory"]["total"]),
    "of it temporary": lambda r: _mb(r["memory"]["temporary"]),
    "HLO instructions": lambda r: f"{r['operations']:,}",
    "moved, GB": lambda r: f"{r['bytes_moved'] / 1e9:.2f}",
    "collectives": _collectives,
    "compiling, CPU s": lambda r: f"{r['compile_cpu_seconds']:.0f}",
    "cycles, M": lambda r: _estimated(r, "cycles", 1e6, ".2f"),
    "ms (estimate)": lambda r: _estimated(r, "milliseconds", 1, ".3g"),
    "images/s (estimate)": lambda r: _estimated(r, "images_per_second", 1, ",.0f"),
}
# What a program without a result says instead of it: in which column of the table, and in a line.
UNFINISHED = {
    "not_finished": ("compiling, CPU s", "> {}", "not finished in {} CPU seconds"),
    "does_not_fit": ("memory, MB", "does not fit", "does not fit"),
    "failed": ("compiling, CPU s", "fails", "{}"),
}


def _cell(column: str, record: Record) -> str:
    for why, (place, text, _) in UNFINISHED.items():
        if why in record:
            return text.format(record[why]) if column == place else "?"
    return COLUMNS[column](record)


def _largest(record: Record) -> str:
    rows = [
        (f"`{c['name']}`", f"`{c['source']}`", f"{c['cycles']:,}", _mb(c["bytes"]))
        for c in record["largest_operations"]
    ]
    table = _cli.markdown_table(("operation", "from", "cycles", "MB"), rows, (0, 1))
    return f"\n`{record['name']}`, {record['program']}:\n\n{table}\n"


# Hops of an all-reduce: the longest way across the torus.
HOPS = {"v5e": {1: 0, 8: 4, 64: 8, 256: 16}, "v5p": {1: 0, 8: 3, 64: 6, 256: 10}}
HOP_SECONDS = 1e-6
# A gradient's ring uses half of what a chip sends, which is half of what is published.
SHARE = 0.25


def scaling(records: Sequence[Record]) -> str:
    """Returns the table of docs/scaling.md, as Markdown."""
    heads = (
        *("chip", "chips", "images per chip", "memory, MB (compiled)", "compute, ms (estimated)"),
        *("collectives (compiled)", "gradients, ms (assumed rate)", "waiting, ms (assumed)"),
        *("images/s (estimated)", "efficiency (estimated)"),
    )
    of_scaling = {_of_scaling(r): r for r in records if r["group"] == "scaling"}
    rows: list[list[str]] = []
    for name, slices in SCALES.items():
        for batch in SCALED_BATCHES:
            alone = None
            for chips, target in slices.items():
                record = of_scaling[target, chips, batch]
                row = [name, str(chips), str(batch)]
                rows.append(row)
                if "estimated" not in record:
                    row.append(in_short(record))
                    continue
                compute = record["estimated"]["milliseconds"]
                gradients, waiting = exchange(record, CHIPS_BY_NAME[name], chips)
                speed = batch / (compute + gradients + waiting)
                alone = alone or speed
                row += [
                    *(_mb(record["memory"]["total"]), f"{compute:.3g}", _collectives(record)),
                    *(f"{gradients:.3f}", f"{waiting:.3f}"),
                    *(f"{1e3 * chips * speed:,.0f}", f"{speed / alone:.1%}"),
                ]
    return _cli.markdown_table(heads, rows, (0, heads.index("collectives (compiled)"))) + "\n"


def _of_scaling(record: Record) -> tuple[str, int, int]:
    """Returns target, chips, and images on each of them."""
    options = dict(option.split("=", 1) for option in record["options"])
    chips = int(options["--chips"])
    return record["target"], chips, int(options["--config.training.batch_size"]) // chips


def exchange(record: Record, chip: Chip, chips: int) -> tuple[float, float]:
    """Milliseconds of sending what the collectives of a step hold, and of waiting for them."""
    assert chip.interconnect
    collectives = record["collectives"].values()
    size = sum(c["bytes"] for c in collectives)
    number = sum(c["number"] for c in collectives)
    sending = 2 * (chips - 1) / chips * size / (SHARE * chip.interconnect)
    return 1e3 * sending, 1e3 * number * HOPS[chip.name][chips] * HOP_SECONDS


def in_place(page: str, table: str) -> str:
    """Replaces what stands between the two marks of `page`."""
    begin, end = "<!-- compiled -->", "<!-- end of compiled -->"
    return re.sub(f"{begin}.*?{end}", f"{begin}\n{table}{end}", page, flags=re.S)
