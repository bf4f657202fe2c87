"""A bounded number of texts, evenly spread over a stream of unknown length."""

from collections.abc import Iterable
from typing import Self


class EvenSample:
    """At most `max_texts` of the texts that are added, evenly spread; always the same ones.

    Every stride-th text is kept; when twice as many as wanted are there, every second one goes and the stride
    doubles. So no more than ``2 * max_texts`` are held in memory, however many are added.
    """

    def __init__(self, max_texts: int) -> None:
        assert max_texts > 0
        self.num_seen = 0
        self._max_texts, self._stride = max_texts, 1
        self._kept: list[str] = []

    @classmethod
    def of(cls, texts: Iterable[str], max_texts: int) -> Self:
        """A sample of all of `texts`, read once."""
        sample = cls(max_texts)
        for text in texts:
            sample.add(text)
        return sample

    def add(self, text: str) -> None:
        """Keep the next text, or pass over it."""
        if self.num_seen % self._stride == 0:
            if len(self._kept) == 2 * self._max_texts:
                del self._kept[1::2]
                self._stride *= 2  # `num_seen` is a multiple of the new stride, too
            self._kept.append(text)
        self.num_seen += 1

    @property
    def texts(self) -> list[str]:
        """The texts of the sample, in their order."""
        size, wanted = len(self._kept), self._max_texts
        if size <= wanted:
            return self._kept
        return [self._kept[place * size // wanted] for place in range(wanted)]
