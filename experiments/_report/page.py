"""The page of one run."""

from collections.abc import Sequence
from html import escape

from _report import decoded, numbers
from _report.explorer import chosen, explorer
from _report.html import contents, document
from _report.mistakes import mistakes
from _report.results import Results, examples

SCRIPTS = ("elements.js", "curves.js", "answers.js", "decoder.js", "explorer.js")
AGAIN = "A finished run is only evaluated; to train again, give another directory."
SECTIONS = {
    "learning": "Learning",
    "confusion": "Confusion matrix",
    "explorer": "Explorer",
    "reconstructions": "Reconstructions",
    "poses": "Pose elements",
    "mistakes": "Mistakes",
    "config": "Config",
    "commands": "Reproduce",
}


def page(results: Results, versions: dict[str, str], commands: Sequence[str]) -> str:
    """Writes one HTML document that refers to nothing outside itself."""
    config, shown = results.checkpoint.config, examples(results)
    explored, data = explorer(results, shown, chosen(results, shown))
    body = [
        numbers.header(results, versions),
        contents(SECTIONS),
        "<main>",
        numbers.learning(results),
        numbers.confusion(results),
        explored,
        decoded.reconstructions(results, shown),
        decoded.poses(results, shown),
        mistakes(results),
        numbers.settings(config),
        numbers.commands(commands, AGAIN),
        "</main>",
    ]
    title = escape(f"{config.model.name} on {results.dataset.name}")
    return document(title, "\n".join(body), SCRIPTS, data)
