"""Tokens as labels of a picture: short enough, and in characters that there are fonts for."""

import unicodedata
from collections.abc import Collection, Sequence

import regex

from transformer.attention_maps.token_texts import Token

ELLIPSIS = "…"
MAX_COLUMNS, CODE_COLUMNS = 16, 12


def label_texts(tokens: Sequence[Token], missing: Collection[str], max_columns: int = MAX_COLUMNS) -> list[str]:
    """One label for each token.

    Args:
        tokens: of one side.
        missing: characters without a glyph; a token that has one becomes its place (from 1) and its code points.
        max_columns: longer labels lose their middle.
    """
    return [
        f"{place} {code_points(token.text, missing)}"
        if not set(missing).isdisjoint(token.text)
        else shortened(token.text, max_columns)
        for place, token in enumerate(tokens, start=1)
    ]


def code_points(text: str, missing: Collection[str], max_columns: int = CODE_COLUMNS) -> str:
    """The beginning of a text with a number, such as ``U+4F60``, for each character without a glyph."""
    spelt = [f"U+{ord(each):04X}" if each in missing else each for each in text]
    kept = 1
    while kept < len(spelt) and sum(map(columns, spelt[: kept + 1])) <= max_columns:
        kept += 1
    return "".join(spelt[:kept]) + (ELLIPSIS if kept < len(spelt) else "")


def shortened(text: str, max_columns: int) -> str:
    """A text of at most so many columns; a longer one has an ellipsis for its middle.

    Characters are never parted from the marks that are combined with them.
    """
    if columns(text) <= max_columns:
        return text
    clusters = regex.findall(r"\X", text)
    head, tail = 0, len(clusters)
    used = 1  # the ellipsis
    while True:
        at_head = head <= len(clusters) - tail
        used += columns(clusters[head] if at_head else clusters[tail - 1])
        if used > max_columns:
            return "".join([*clusters[:head], ELLIPSIS, *clusters[tail:]])
        head, tail = (head + 1, tail) if at_head else (head, tail - 1)


def is_single_character(text: str) -> bool:
    """Whether it is one character as people count them, with the marks that are combined with it."""
    return len(regex.findall(r"\X", text)) == 1


def columns(text: str) -> int:
    """How wide a text is, in Latin letters: marks have no width of their own, East Asian characters have two."""
    return sum(
        0
        if unicodedata.category(each) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(each) in "WF"
        else 1
        for each in text
    )
