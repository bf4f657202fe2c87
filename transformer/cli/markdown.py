"""Texts and tables in Markdown (GitHub's)."""

import re
from collections.abc import Sequence

from rich.cells import cell_len

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")


def escaped(text: str) -> str:
    """A text that reads in Markdown as it is: its signs have no meaning, and it stays on one line."""
    visible = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in
                      text.replace("\n", "⏎"))  # fmt: skip
    return _SPECIAL.sub(r"\\\1", visible)


def code(text: str) -> str:
    """A text as code, also inside a table, where a bar would end the cell."""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    edge = " " if fence != "`" else ""
    return f"{fence}{edge}{text.replace('|', chr(92) + '|')}{edge}{fence}"


def code_block(text: str, language: str = "") -> str:
    """Lines as they are."""
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A table whose columns line up in the source as well.

    Args:
        headings: of the columns.
        rows: cells, in Markdown.
        numbers: columns that are aligned to the right.
    """
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(3, *(cell_len(line[column]) for line in lines)) for column in range(len(headings))]
    shown = []
    for line in lines:
        cells = []
        for column, cell in enumerate(line):
            fill = " " * (widths[column] - cell_len(cell))
            cells.append(fill + cell if column in numbers else cell + fill)
        shown.append(f"| {' | '.join(cells)} |")
    rule = ["-" * (width - 1) + ":" if column in numbers else "-" * width for column, width in enumerate(widths)]
    return "\n".join([shown[0], f"| {' | '.join(rule)} |", *shown[1:]])
