"""Whether docs/ still agrees with the experiments and their results."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _reproduce import registry
from _reproduce.compare import Verdict, judge, power, summary
from _reproduce.experiment import Experiment
from _reproduce.recipes import recipe_key, run_config, source_of
from _reproduce.results import in_short
from _reproduce.tables import notes, printed, printed_difference

from capsjax import models

NUMBER = re.compile(r"[+−-]?\d*\.?\d+")
# A number that a page has to support: with a decimal point, or per cent.
STATED = re.compile(r"(?<![\w.,])(\d*\.\d+|\d+(?= %| to \d+ %))")
LINK = re.compile(r"\]\(\.\./results/(\w+)\.md\)")


class Number(NamedTuple):
    """A mean as a page has it, with what `judge` asks for."""

    mean: float
    error: float | None


class Page(NamedTuple):
    """What a page of docs/results says.

    Attributes:
      scale: its name.
      tables: by title and row, the numbers that were run.
      published: by title and row or claim, what is printed, as the page has it.
      verdicts: by claim.
      keys: by row, the key of its recipe.
      data: names of data sets.
      text: all of it.
    """

    scale: str
    tables: dict[str, dict[str, Number]]
    published: dict[str, dict[str, str]]
    verdicts: dict[str, str]
    keys: dict[str, str]
    data: list[str]
    text: str


def read(text: str) -> Page:
    """Reads a page as `_reproduce.tables.markdown` writes it."""
    scale = re.search(r"^Scale (\w+),", text, re.M)
    tables: dict[str, dict[str, Number]] = {}
    published: dict[str, dict[str, str]] = {}
    verdicts, title = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if title == "Claims" and len(cells) == 4 and cells[0] not in ("claim", "---"):
            verdicts[cells[0]] = cells[1]
            published.setdefault(title, {})[cells[0]] = cells[3]
        elif len(cells) == 6 and cells[2].isdecimal():
            published.setdefault(title, {})[cells[0]] = cells[3]
            if not int(cells[2]):
                continue
            mean, _, std = cells[1].partition(" ± ")
            error = float(std) / int(cells[2]) ** 0.5 if std else None
            tables.setdefault(title, {})[cells[0]] = Number(float(mean), error)
    recipes = re.search(r"^- Recipes: (.*)$", text, re.M)
    keys = re.findall(r"`(\w+)` ([^;]+)", recipes[1]) if recipes else []
    data = re.search(r"^- Data: (.*)$", text, re.M)
    names = re.split(r", | from ", data[1]) if data else []
    by_row = {row: key for key, row in keys}
    return Page(scale[1] if scale else "", tables, published, verdicts, by_row, names, text)


def check(root: Path) -> list[str]:
    """All statements that no longer hold, a line each.

    Args:
      root: of the repository.
    """
    results = root / "docs" / "results"
    pages = {
        name: read(file.read_text(encoding="utf-8"))
        for name in registry.EXPERIMENTS
        if (file := results / f"{name.replace('/', '_')}.md").exists()
    }
    index = (results / "index.md").read_text(encoding="utf-8").splitlines()
    lines = []
    for name, page in pages.items():
        listed = next((line for line in index if line.startswith(f"| [{name}]")), "")
        lines += [f"{name}: {line}" for line in _of_page(page, registry.EXPERIMENTS[name], listed)]
    stems = {name.replace("/", "_") for name in registry.EXPERIMENTS} | {"index"}
    for file in sorted(results.glob("*.md")):
        if file.stem not in stems:
            lines.append(f"docs/results/{file.name}: this name no longer exists")
    run = sum(bool(page.tables) for page in pages.values())
    lines += _of_counts(root, run)
    for file in sorted((root / "docs" / "papers").glob("*.md")):
        lines += [
            f"docs/papers/{file.name}: {line}"
            for line in _of_paper(file.read_text(encoding="utf-8"), results)
        ]
    return list(dict.fromkeys(lines))


def _of_page(page: Page, experiment: Experiment, listed: str) -> Iterator[str]:
    rows = experiment.at(page.scale)
    titles = {column.title: column for column in experiment.columns}
    for title in page.tables.keys() - titles.keys():
        yield f"the column {title!r} no longer exists"
    for title, table in page.tables.items():
        if title not in titles or titles[title].deviation_of:
            continue
        for row in table.keys() - rows.keys():
            yield f"the row {row!r} no longer exists"
        for row in table.keys() & rows.keys() - page.keys.keys():
            yield f"{row}: the page has no key of its recipe"
        for row in table.keys() & rows.keys():
            today = printed(titles[title].printed(row), titles[title].digits)
            if page.published[title][row] != today:
                yield f"{row}: {page.published[title][row]} as printed in {title!r}, not {today}"
    wanted = {f"- {note}" for note in notes(experiment)}
    for note in wanted ^ set(re.findall(r"^- (?:chosen|different): .*$", page.text, re.M)):
        where = "not on the page" if note in wanted else "on the page alone"
        yield f"{note[2:60]!r} … is {where}"
    for row in page.keys.keys() & rows.keys():
        config = run_config(experiment, row, page.scale, 0, {})
        stand_ins = [{}, *({source_of(config): other} for other in page.data)]
        today = {recipe_key(run_config(experiment, row, page.scale, 0, use)) for use in stand_ins}
        if page.keys[row] not in today:
            yield f"{row}: made with an older recipe, which the page does not say"
    verdicts = []
    for claim in experiment.claims:
        column = experiment.column(claim.metric)
        table = page.tables.get(column.title, {})
        less = table.get(claim.less) if isinstance(claim.less, str) else Number(claim.less, 0.0)
        found = judge(claim, table.get(claim.more), less)
        verdicts.append(found)
        said = page.verdicts.get(claim.text)
        if said is None:
            yield f"the claim {claim.text!r} is not on the page"
        elif not _agree(found, said, column.digits):
            yield f"the claim {claim.text!r}: {said}; by the page's numbers: {found.verdict}"
        elif (there := page.published["Claims"][claim.text]) != (
            today := printed_difference(experiment, claim)
        ):
            yield f"the claim {claim.text!r}: the published difference is {today}, not {there}"
    for text, reason in experiment.untested.items():
        if f"- {text}: {reason}\n" not in page.text:
            yield f"the claim {text!r} is not on the page with its reason"
    for text in page.verdicts.keys() - {claim.text for claim in experiment.claims}:
        yield f"the claim {text!r} no longer exists"
    counts = summary(list(page.verdicts.values()))
    ours = {
        column.metric: {row: one.mean for row, one in page.tables.get(column.title, {}).items()}
        for column in experiment.columns
    }
    counts = f"{power(experiment, verdicts, ours)} | {counts}"
    if page.tables and not listed.endswith(f"| {counts} |"):
        yield f"docs/results/index.md does not say {counts!r} of it"


def _agree(found: Verdict, said: str, digits: int) -> bool:
    """Whether a page says what its numbers say; its numbers are rounded."""
    if found.difference is None:
        return found.verdict == said
    close = abs(found.difference + found.claim.slack) <= 2 * 10.0**-digits
    return close or found.verdict == said


def _of_counts(root: Path, run: int) -> Iterator[str]:
    """Numbers and sentences that several pages have."""
    num = len(registry.EXPERIMENTS)
    wanted = {
        "README.md": [
            f"| {len(models.names())} by name",
            f"functions, {len(models.names())} networks by name",
            f"| {num} tables and figures by name",
            f"{num} tables and figures of five papers",
            f"the {num} tables and figures by name",
            "[what they gave]" if run == num else f"[what {run} of them gave]",
        ],
        "docs/index.md": [f"{num} tables and figures of five papers"],
        "docs/results.md": [f"{run} of {num} at small scale"],
        "docs/results/index.md": [
            f"{run} of {num} were run.",
            *in_short(root / "docs" / "papers").values(),
        ],
    }
    for name, texts in wanted.items():
        page = (root / name).read_text(encoding="utf-8")
        for text in texts:
            if not re.search(rf"(?<!\d){re.escape(text)}", page):
                yield f"{name} does not say {text!r}"


def _of_paper(text: str, results: Path) -> Iterator[str]:
    """Statements below "What we found": each number is to be on a results page that it names."""
    found = text.partition("What we found")[2]
    for statement in re.split(r"\n(?=- )|\n\n", found):
        words = " ".join(statement.split())
        plain = re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", words)
        stated = STATED.findall(plain)
        linked = [results / f"{stem}.md" for stem in LINK.findall(words)]
        if stated and not linked:
            yield f"no results page is named for {words[:60]!r} …"
            continue
        for page in (page for page in linked if not page.exists()):
            yield f"{page.name} does not exist"
        texts = [page.read_text(encoding="utf-8") for page in linked if page.exists()]
        rows = [line for text in texts for line in text.splitlines() if line.startswith("|")]
        there = {float(n.lstrip("+−-")) for row in rows for n in NUMBER.findall(row)}
        for number in stated:
            digits = len(number.partition(".")[2])
            if not any(abs(other - float(number)) <= 0.5001 * 10.0**-digits for other in there):
                yield f"{number} is on none of its results pages: {words[:60]!r} …"
        for holding, of in re.findall(r"(\d+) of (\d+) claims hold", words):
            verdicts = [v for t in texts for v in read(t).verdicts.values() if v != "not run"]
            count = (sum(v.startswith("holds") for v in verdicts), len(verdicts))
            if count != (int(holding), int(of)):
                yield f"{count[0]} of {count[1]} claims hold, not {words[:60]!r} …"
        for failing in re.findall(r"(\d+) claims do not hold", words):
            verdicts = [v for t in texts for v in read(t).verdicts.values()]
            count = sum(v.startswith("does not hold") for v in verdicts)
            if count != int(failing):
                yield f"{count} claims do not hold, not {words[:60]!r} …"
