"""Tables in Markdown."""

from collections.abc import Container, Iterable, Sequence


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: Container[int] = (0,)
) -> list[str]:
    """Returns the lines of a table; numbers stand to the right, the columns `left` to the left."""
    rules = ["---" if column in left else "---:" for column in range(len(heads))]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows)]
