"""Small matrices as people type them: a row on each line, numbers between spaces."""

import re
from collections.abc import Sequence
from typing import NamedTuple

Matrix = list[list[float]]

# Four of each are enough to see everything; the six tokens of a well-known example fit as well.
MAX_ROWS, MAX_COLUMNS, LARGEST = 6, 4, 100
MAX_CHARACTERS = 400

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


class Matrices(NamedTuple):
    """What attention works on: ``query`` (Q, E), ``key`` (K, E) and ``value`` (K, U)."""

    query: Matrix
    key: Matrix
    value: Matrix


def parse_matrices(query: str, key: str, value: str) -> Matrices:
    """Read three matrices that fit together.

    Raises:
        ValueError: saying in one sentence what is wrong in which matrix, row and cell, or which sizes do not fit.
    """
    parsed = Matrices(parse_matrix("Q", query), parse_matrix("K", key), parse_matrix("V", value))
    width, key_width = len(parsed.query[0]), len(parsed.key[0])
    if width != key_width:
        raise ValueError(
            f"Q and K must have equally many columns, because each query is multiplied with each key, but Q has "
            f"{width} and K has {key_width}."
        )
    if len(parsed.key) != len(parsed.value):
        raise ValueError(
            f"K and V must have equally many rows, one key for each value, but K has {len(parsed.key)} and V has "
            f"{len(parsed.value)}."
        )
    return parsed


def parse_matrix(name: str, text: str) -> Matrix:
    """Read one matrix: rows end with a line or a semicolon, cells with spaces or a comma; blank rows do not count.

    Args:
        name: of the matrix, for messages.
        text: what was typed.

    Raises:
        ValueError: no or too many rows or cells, rows of different lengths, a cell that is no number, or too large a
            number.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{name} must have {MAX_CHARACTERS} characters at most, but has {len(text)}.")
    rows = [row.replace(",", " ").split() for row in re.split(r"[\n;]", text)]
    rows = [row for row in rows if row]
    if not rows:
        raise ValueError(f"{name} must have at least one row of numbers, but is empty.")
    if len(rows) > MAX_ROWS:
        raise ValueError(f"{name} must have {MAX_ROWS} rows at most, but has {len(rows)}.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"the rows of {name} must be equally long, but row 1 has {_cells(len(rows[0]))} and row {number} has "
                f"{len(row)}."
            )
    if len(rows[0]) > MAX_COLUMNS:
        raise ValueError(f"{name} must have {MAX_COLUMNS} columns at most, but has {len(rows[0])}.")
    return [
        [
            _number(cell, f"{name}, row {row_number}, cell {cell_number}")
            for cell_number, cell in enumerate(row, start=1)
        ]
        for row_number, row in enumerate(rows, start=1)
    ]


def format_matrix(matrix: Sequence[Sequence[float]]) -> str:
    """What :func:`parse_matrix` reads, with points below points in each column."""
    columns = [_column(list(column)) for column in zip(*matrix, strict=True)]
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))


def _column(numbers: Sequence[float]) -> list[str]:
    """Numbers of one width, with as many decimals as the one with the most."""
    decimals = max(len(f"{number:g}".partition(".")[2]) for number in numbers)
    texts = [f"{number:.{decimals}f}" for number in numbers]
    return [text.rjust(max(map(len, texts))) for text in texts]


def _number(cell: str, where: str) -> float:
    plain = cell.replace("−", "-")  # the minus sign that people copy from formulas
    if _NUMBER.fullmatch(plain) is None:
        raise ValueError(f"{where} must be a number, such as 0.5, but is “{cell}”.")
    if abs(float(plain)) > LARGEST:
        raise ValueError(f"{where} must lie between −{LARGEST} and {LARGEST}, but is {cell}.")
    return float(plain)


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"
