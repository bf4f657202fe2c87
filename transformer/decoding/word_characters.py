"""Which characters make words, read from UTF-8 one byte after another."""

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex

OUTSIDE = 0
"""State between two characters, the one before being no part of a word; also at the start of a text."""
INSIDE = 1
"""State between two characters, the one before being part of a word."""

# Letters, digits and their combining marks, in scripts that put something between words. (A variation selector is a
# mark too, but chooses a picture.) Beyond the second plane there are only Han and other signs for whole words.
_UNSPACED = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
_CLASS = (
    r"[[\p{L}\p{N}\p{Mn}\p{Mc}]--[\p{Variation_Selector}"
    + "".join(rf"\p{{Script={script}}}\p{{Script_Extensions={script}}}" for script in _UNSPACED)
    + r"\U00020000-\U0010FFFF]]"
)
_WORD = regex.compile(f"(?V1){_CLASS}+")
_UNIT = regex.compile(rf"(?V1){_CLASS}+|\s+|.")
_END = 0x20000
_INVALID = -1


class WordCharacters(NamedTuple):
    """An automaton over the bytes of a text that knows what the last character was, and where a new one begins.

    Bytes that are no UTF-8 are read as decoders read them: an incomplete character becomes U+FFFD, which is no part of
    a word, and the byte after it begins anew.

    Attributes:
        next: (states, 256) int16: the state after a byte. OUTSIDE and INSIDE are between characters, all
            others inside one.
        valid: (states, 256) bool: whether the byte may come there in UTF-8.
    """

    next: npt.NDArray[np.int16]
    valid: npt.NDArray[np.bool_]


def is_word_character(character: str) -> bool:
    """Whether it is alphanumeric in a script that is written with spaces between words."""
    return _WORD.fullmatch(character) is not None


def cut_at_words(text: str) -> list[str]:
    """The parts of a text: words, white space, and all other characters one by one."""
    return [match.group() for match in _UNIT.finditer(text)]


@functools.cache
def word_characters() -> WordCharacters:
    """The automaton; the smallest there is, of some hundred states."""
    is_word = np.zeros(_END, dtype=np.int16)
    characters = "".join(map(chr, range(0xD800))) + "?" * 0x800 + "".join(map(chr, range(0xE000, _END)))
    for run in _WORD.finditer(characters):
        is_word[run.start() : run.end()] = 1
    nodes: dict[tuple[int, ...], int] = {}

    def node(children: tuple[int, ...]) -> int:
        """The state in which the continuation bytes 80 to BF lead to these states."""
        return nodes.setdefault(children, len(nodes) + 2)

    def last(block: int) -> int:
        """The state before the last byte of 64 characters."""
        if block in range(0xD800 // 64, 0xE000 // 64):
            return _INVALID
        return node(tuple(is_word[64 * block : 64 * (block + 1)].tolist()) if 64 * block < _END else (OUTSIDE,) * 64)

    def last_but_one(block: int) -> int:
        """The state before the last two bytes of 4,096 characters."""
        return node(tuple(last(64 * block + byte) for byte in range(64)))

    first = np.full(256, _INVALID, dtype=np.int16)
    first[:0x80] = is_word[:0x80]
    for lead in range(0xC2, 0xE0):
        first[lead] = last(lead & 0x1F)
    # Longer forms of shorter characters are not valid: after E0 comes A0 at least, after F0 90.
    first[0xE0] = node((_INVALID,) * 32 + tuple(last(32 + byte) for byte in range(32)))
    for lead in range(0xE1, 0xF0):
        first[lead] = last_but_one(lead & 0x0F)
    beyond = last_but_one(_END // 4096)
    planes = [last_but_one(block) if 4096 * block < _END else beyond for block in range(16, 0x110)]
    first[0xF0] = node((_INVALID,) * 16 + tuple(planes[:48]))
    for number in range(1, 4):
        first[0xF0 + number] = node(tuple(planes[64 * number - 16 : 64 * number + 48]))
    first[0xF4] = node((*planes[240:], *(_INVALID,) * 48))

    following = np.full((len(nodes) + 2, 256), _INVALID, dtype=np.int16)
    following[:2] = first
    for children, state in nodes.items():
        following[state, 0x80:0xC0] = children
    valid = following != _INVALID
    anew = np.where(first == _INVALID, OUTSIDE, first)
    return WordCharacters(np.where(valid, following, anew).astype(np.int16), valid)
