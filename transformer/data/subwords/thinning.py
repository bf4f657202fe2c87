"""A bounded number of texts, evenly spread over a stream of unknown length."""

from collections.abc import Iterable
from typing import Self

MAX_CHARACTERS = 200_000_000
"""Of texts held at once; a character takes 1 byte in English, 2 in most other languages, 4 beside an emoji."""


class EvenSample:
    """At most `max_texts` of the texts that are added, evenly spread; always the same ones.

    Every stride-th text is kept; when there are more than twice as many as wanted, or too many characters, every
    second one goes and the stride doubles. So memory is bounded, however many texts are added and however long.

    Args:
        max_texts: so many texts at most.
        max_characters: so many characters at most, of all of them. Of a text longer than half of that, only the first
            half of that many count.

    Attributes:
        num_seen: texts added.
        num_cut: those of them that were too long.
        longest: characters that count of one text.
    """

    def __init__(self, max_texts: int, max_characters: int = MAX_CHARACTERS) -> None:
        assert max_texts > 0
        assert max_characters > 1
        self.num_seen, self.num_cut = 0, 0
        self.longest = max_characters // 2
        self._max_texts, self._max_characters = max_texts, max_characters
        self._stride, self._num_characters = 1, 0
        self._kept: list[str] = []

    @classmethod
    def of(cls, texts: Iterable[str], max_texts: int, max_characters: int = MAX_CHARACTERS) -> Self:
        """A sample of all of `texts`, read once."""
        sample = cls(max_texts, max_characters)
        for text in texts:
            sample.add(text)
        return sample

    def add(self, text: str) -> None:
        """Keep the next text, or pass over it."""
        self.num_cut += len(text) > self.longest
        if self.num_seen % self._stride == 0:
            self._kept.append(text[: self.longest])
            self._num_characters += len(self._kept[-1])
            while len(self._kept) > 2 * self._max_texts or self._num_characters > self._max_characters:
                self._num_characters -= sum(map(len, self._kept[1::2]))
                del self._kept[1::2]
                self._stride *= 2
        self.num_seen += 1

    @property
    def texts(self) -> list[str]:
        """The texts of the sample, in their order."""
        size, wanted = len(self._kept), self._max_texts
        if size <= wanted:
            return self._kept
        return [self._kept[place * size // wanted] for place in range(wanted)]
