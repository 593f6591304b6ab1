"""The whole page."""

from collections.abc import Sequence
from html import escape

from _report import decoded, numbers
from _report.html import document
from _report.mistakes import mistakes
from _report.results import Results, examples


def page(results: Results, versions: dict[str, str], commands: Sequence[str]) -> str:
    """One HTML document that refers to nothing outside itself."""
    config, dataset = results.checkpoint.config, results.dataset
    shown = examples(results)
    title = escape(f"{config.model.name} on {dataset.name}")
    body = "\n".join(
        [
            numbers.header(results, versions),
            numbers.learning(results),
            numbers.confusion(results),
            decoded.reconstructions(results, shown),
            decoded.poses(results, shown),
            mistakes(results),
            numbers.settings(config),
            numbers.commands(commands),
        ]
    )
    return document(title, body)
