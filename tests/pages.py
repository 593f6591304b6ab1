"""The code on the pages of the documentation."""

import importlib
import re
import shlex
from pathlib import Path

import _cli

from capsjax.training import config as configs


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in a language, "{code-cell} python" for the cells of a notebook."""
    return re.findall(rf"```{re.escape(language)}\n(.*?)```", page, re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The words of each line of the shell, without comments."""
    text = _joined("".join(blocks(page, "sh")))
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def scripts(page: str) -> list[list[str]]:
    """The words of each call of a script of experiments/, wherever in the shell it stands."""
    text = _joined("".join(blocks(page, "sh") + blocks(page, "bash")))
    calls = re.findall(r"experiments/\w+\.py[^\n;&|>\"]*", text)
    return [shlex.split(call.rstrip("'"), comments=True) for call in calls]


def _joined(text: str) -> str:
    """Each command in one line."""
    return re.sub(r" *\\\n *", " ", text)


def check_arguments(words: list[str]) -> None:
    """The script takes them, and its config the values that are changed in it."""
    script, *arguments = words
    module = importlib.import_module(Path(script).stem)
    seen = []
    _cli.run(module.parser(), seen.append, arguments)
    (args,) = seen
    if getattr(args, "config", None):
        flat = configs.flatten(_cli.config_of(args))
        assert all(str(flat[key]) == text for key, text in args.overrides.items())
