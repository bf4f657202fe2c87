"""What single tokens of a text read as, however their vocabulary spells them."""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from transformer.data.subwords.token_bytes import token_bytes
from transformer.data.subwords.tokenizer import Tokenizer

# White space gets a shape.
SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
BASE = "◌"  # what a combining mark stands on that has no other character in its token


class Token(NamedTuple):
    """One token of an example.

    Attributes:
        id: in its vocabulary.
        piece: as the vocabulary spells it, such as ``ĠmÃ¤n`` or ``</s>``.
        text: what it adds to the text, for people: ``␣män``, with signs for white space. A token of some bytes of a
            character is that character and which part, such as ``好[1/2]``.
    """

    id: int
    piece: str
    text: str


def read_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Token]:
    """The tokens with these ids, read one after the other; special tokens as they are spelt."""
    pieces = tokenizer.pieces(ids)
    try:
        contents = token_bytes(tokenizer, ids)
    except ValueError:  # a foreign file whose decoder knows texts only as a whole
        contents = [None] * len(ids)
    texts: list[str] = []
    for is_text, run in groupby(contents, key=lambda content: content is not None):
        tokens = [content or b"" for content in run]
        texts += _texts(tokens) if is_text else [""] * len(tokens)
    return [
        Token(index, piece, text or "".join(map(_shown, piece)))
        for index, piece, text in zip(ids, pieces, texts, strict=True)
    ]


def _texts(tokens: Sequence[bytes]) -> list[str]:
    """What each token reads as between the others; blank for one without bytes."""
    owners = [number for number, token in enumerate(tokens) for _ in token]
    texts = [""] * len(tokens)
    for start, end, character in _characters(b"".join(tokens)):
        parts = sorted(set(owners[start:end]))
        for number, part in enumerate(parts, start=1):
            shown = _shown(character)
            if unicodedata.category(character).startswith("M") and not texts[part]:
                shown = BASE + shown
            texts[part] += shown if len(parts) == 1 else f"{shown}[{number}/{len(parts)}]"
    return texts


def _characters(content: bytes) -> Iterator[tuple[int, int, str]]:
    """First byte, end and character of all that is UTF-8; single bytes that are not, as lone surrogates."""
    start = 0
    for character in content.decode("utf-8", "surrogateescape"):
        end = start + (1 if "\udc80" <= character <= "\udcff" else len(character.encode()))
        yield start, end, character
        start = end


def _shown(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    if "\udc80" <= character <= "\udcff":
        return f"<0x{ord(character) - 0xDC00:02X}>"
    return character if character.isprintable() else f"<U+{ord(character):04X}>"
