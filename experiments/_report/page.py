"""The whole page."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from _report import decoded, numbers
from _report.mistakes import mistakes
from _report.results import Results, examples

# A browser that reads this loads nothing from outside and runs no script, whatever else is here.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = Path(__file__).with_name("page.css")


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
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
{body}
</body>
</html>
"""
