"""A deterministic automaton over the bytes of a text that finds one of several phrases in it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transformer.decoding.word_characters import INSIDE, OUTSIDE, is_word_character, word_characters

_MAX_READINGS = 10_000


class PhraseAutomaton(NamedTuple):
    """States are numbered from 0, OUTSIDE: the text is empty.

    As many as :func:`word_characters` has, with the same numbers, have read nothing of a phrase. As many after them
    are waiting: a phrase is read to its end, and the next character will show whether its last word ends there.
    Then comes `found`, which is never left, then all states that have read a phrase's beginning.

    Attributes:
        table: (states, 256) int16: the state after a byte.
        characters: (states,) the state of :func:`word_characters`, OUTSIDE for `found`.
        waiting: (states,) whether a phrase is there if the text ends.
        found: the state in which a phrase is there whatever follows.
    """

    table: npt.NDArray[np.int16]
    characters: npt.NDArray[np.int16]
    waiting: npt.NDArray[np.bool_]
    found: int


def build_automaton(texts: Sequence[str], *, whole_words: bool) -> PhraseAutomaton:
    """The automaton that finds one of `texts`; states that know the same are one.

    Raises:
        ValueError: The phrases have more than some 10,000 bytes.
    """
    return _Builder([_Phrase.of(text, whole_words=whole_words) for text in texts]).build()


class _Phrase(NamedTuple):
    text: bytes
    word_before: bool  # no character of a word may stand before it
    word_after: bool

    @classmethod
    def of(cls, text: str, *, whole_words: bool) -> "_Phrase":
        edges = (whole_words and is_word_character(text[0]), whole_words and is_word_character(text[-1]))
        return cls(text.encode(), *edges)


class _Reading(NamedTuple):
    """What is known after some bytes."""

    characters: int
    waiting: bool
    begun: frozenset[tuple[int, int]] = frozenset()  # the numbers of phrases and how many of their bytes are read


class _Builder:
    """The subset construction; most rows come from two tables that know of no phrase."""

    def __init__(self, phrases: Sequence[_Phrase]) -> None:
        self._phrases = phrases
        self._beginnings = {phrase.text[0] for phrase in phrases}
        following, valid = word_characters()
        self._following = following
        self._count = len(following)
        self._found = 2 * self._count
        self._readings: list[_Reading] = []
        self._numbers: dict[_Reading, int] = {}
        self._plain = following.copy()
        # A character that is no part of a word, also a broken one, ends a phrase's word; one that is carries it on.
        ended = following == OUTSIDE
        ended[INSIDE + 1 :] |= ~valid[INSIDE + 1 :]
        lasting = np.where(following == INSIDE, INSIDE, following + self._count)
        self._waiting = np.where(ended, self._found, lasting).astype(np.int16)

    def build(self) -> PhraseAutomaton:
        count, found = self._count, self._found
        plain, waiting = self._plain.copy(), self._waiting
        for byte in self._beginnings:
            # Phrases begin with a character's first byte: an incomplete one before it is broken, as if outside. None
            # need begin where one is waiting: its first character would end the wait.
            plain[:, byte] = self._after(_Reading(OUTSIDE, False), byte)
            plain[INSIDE, byte] = self._after(_Reading(INSIDE, False), byte)
        rows: list[npt.NDArray[np.int16]] = []
        readings = self._readings
        for reading in readings:  # which become more meanwhile
            row = (waiting if reading.waiting else plain)[reading.characters].copy()
            for byte in {self._phrases[number].text[read] for number, read in reading.begun}:
                row[byte] = self._after(reading, byte)
            rows.append(row)
        table = np.concatenate([plain, waiting, np.full((1, 256), found, np.int16), *(row[None] for row in rows)])
        characters = np.concatenate([np.arange(count), np.arange(count), [OUTSIDE], [r.characters for r in readings]])
        is_waiting = np.concatenate([np.arange(found + 1) // count == 1, [r.waiting for r in readings]])
        return PhraseAutomaton(table, characters.astype(np.int16), is_waiting.astype(np.bool_), found)

    def _after(self, reading: _Reading, byte: int) -> int:
        """The number of the state after one more byte."""
        characters = int(self._following[reading.characters, byte])
        plain = int((self._waiting if reading.waiting else self._plain)[reading.characters, byte])
        if plain == self._found:
            return plain
        waiting = plain >= self._count
        open_phrases = set(reading.begun)
        for number, phrase in enumerate(self._phrases):
            if reading.characters != INSIDE or not phrase.word_before:
                open_phrases.add((number, 0))
        begun = set()
        for number, read in open_phrases:
            phrase = self._phrases[number]
            if phrase.text[read] != byte:
                continue
            if read + 1 < len(phrase.text):
                begun.add((number, read + 1))
            elif phrase.word_after:
                waiting = True
            else:
                return self._found
        if not begun:
            return characters + self._count * waiting
        return self._number(_Reading(characters, waiting, frozenset(begun)))

    def _number(self, reading: _Reading) -> int:
        if reading not in self._numbers:
            self._numbers[reading] = self._found + 1 + len(self._readings)
            self._readings.append(reading)
            if len(self._readings) > _MAX_READINGS:
                raise ValueError(
                    f"The alternatives of a phrase must have {_MAX_READINGS} bytes at most, but have more."
                )
        return self._numbers[reading]
