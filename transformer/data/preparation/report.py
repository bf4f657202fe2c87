"""What happened to a corpus on its way to the model: rows kept and left out, lengths in tokens, what tokens lose.

The reports are plain data (JSON); the tallies collect them while a corpus is read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from pydantic import model_validator

from transformer.config import Config
from transformer.data.preparation.histogram import Count, Histogram, LengthTally
from transformer.data.subwords.tokenizer import Tokenizer

MAX_EXAMPLES = 3
MAX_SHOWN = 200
MAX_CHECKED = 10_000
_CONTEXT = 50  # characters shown before the first difference


class DroppedExample(Config):
    """A row that was left out."""

    where: str
    """File and line, or why the row cannot be read."""
    texts: tuple[str | None, ...]
    """Its texts, cut to 200 characters; none where the row cannot be read, and null for a missing one."""


class CorpusReport(Config):
    """What became of the rows of a corpus."""

    name: str
    read: Count
    kept: Count
    dropped: dict[str, Count]
    """Rows left out by each filter; by the name of its setting, or ``blank``, or what the reader calls them."""
    examples: dict[str, tuple[DroppedExample, ...]]
    """The first three rows that each filter left out."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.read != self.kept + sum(self.dropped.values()):
            raise ValueError(f"The rows of {self.name} must be kept or dropped, but the numbers do not add up.")
        return self

    def merged(self, other: "CorpusReport") -> "CorpusReport":
        """The report of the rows of both; `name` and the first examples are this one's."""
        names = list(dict.fromkeys([*self.dropped, *other.dropped]))
        examples = {name: (*self.examples.get(name, ()), *other.examples.get(name, ())) for name in names}
        return CorpusReport(
            name=self.name,
            read=self.read + other.read,
            kept=self.kept + other.kept,
            dropped={name: self.dropped.get(name, 0) + other.dropped.get(name, 0) for name in names},
            examples={name: several[:MAX_EXAMPLES] for name, several in examples.items()},
        )

    def without(self, reason: str, count: int, examples: Sequence[tuple[str, tuple[str, ...]]]) -> "CorpusReport":
        """The same after `count` of the kept rows have been left out; `examples` are places and texts of some."""
        shown = [
            DroppedExample(where=where, texts=tuple(_excerpt(text, 0) for text in texts)) for where, texts in examples
        ]
        return CorpusReport(
            name=self.name,
            read=self.read,
            kept=self.kept - count,
            dropped={**self.dropped, reason: count},
            examples={**self.examples, reason: tuple(shown[:MAX_EXAMPLES])},
        )


class RoundTripFailure(Config):
    """A text that did not come back from its tokens; both cut to 200 characters around the first difference."""

    text: str
    """What should have come back: the text in the tokenizer's normal form."""
    decoded: str
    """What came back."""


class SideReport(Config):
    """The texts of one side in tokens.

    Lengths and unknown tokens are those of all texts. Words and round trips are looked at in at most 10,000 texts,
    evenly spread.
    """

    name: str
    """``source``, ``target`` or ``text``."""
    lengths: Histogram
    """Lengths in tokens, without the marks of begin and end."""
    unknown: Count
    """Unknown tokens."""
    checked: Count
    """Texts looked at in detail."""
    checked_tokens: Count
    """Tokens of those."""
    words: Count
    """Words of those, separated by white space."""
    round_trip_failures: Count
    """How many of those did not come back from their tokens exactly, or in the tokenizer's normal form."""
    failures: tuple[RoundTripFailure, ...]
    """The first three."""

    @property
    def texts(self) -> int:
        """Number of texts."""
        return self.lengths.num_texts

    @property
    def tokens(self) -> int:
        """Number of tokens of all texts."""
        return self.lengths.total

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown, from 0 to 1."""
        return self.unknown / max(1, self.tokens)

    @property
    def tokens_per_word(self) -> float:
        """How many tokens a word takes; 0 where there are no words."""
        return self.checked_tokens / self.words if self.words else 0.0

    def merged(self, other: "SideReport") -> "SideReport":
        """The report of the texts of both."""
        assert self.name == other.name
        return SideReport(
            name=self.name,
            lengths=self.lengths.merged(other.lengths),
            unknown=self.unknown + other.unknown,
            checked=self.checked + other.checked,
            checked_tokens=self.checked_tokens + other.checked_tokens,
            words=self.words + other.words,
            round_trip_failures=self.round_trip_failures + other.round_trip_failures,
            failures=(*self.failures, *other.failures)[:MAX_EXAMPLES],
        )


class PreparationReport(Config):
    """How a training set was made: each corpus, and the texts of each side in tokens."""

    corpora: tuple[CorpusReport, ...]
    sides: tuple[SideReport, ...]

    @classmethod
    def merged(cls, reports: Iterable["PreparationReport"]) -> "PreparationReport":
        """One report of several; corpora of the same name are added up, and so are sides of the same name."""
        corpora: dict[str, CorpusReport] = {}
        sides: dict[str, SideReport] = {}
        for report in reports:
            for corpus in report.corpora:
                corpora[corpus.name] = corpora[corpus.name].merged(corpus) if corpus.name in corpora else corpus
            for side in report.sides:
                sides[side.name] = sides[side.name].merged(side) if side.name in sides else side
        return cls(corpora=tuple(corpora.values()), sides=tuple(sides.values()))


class CorpusTally:
    """Counts the rows of a corpus that are kept and left out, and keeps three examples of each reason."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kept = 0
        self._dropped: Counter[str] = Counter()
        self._examples: dict[str, tuple[DroppedExample, ...]] = {}

    @property
    def kept(self) -> int:
        """Rows kept so far."""
        return self._kept

    @property
    def read(self) -> int:
        """Rows kept or left out so far."""
        return self._kept + self._dropped.total()

    def keep(self, rows: int = 1) -> None:
        """Count rows that are kept."""
        self._kept += rows

    def drop(self, reason: str, where: str | Callable[[], str], texts: tuple[str | None, ...] = ()) -> None:
        """Count a row that is left out.

        Args:
            reason: The filter's name.
            where: File and line; a function is called only if the row becomes an example.
            texts: The row's texts; none if it cannot be read.
        """
        self._dropped[reason] += 1
        if self._dropped[reason] > MAX_EXAMPLES:
            return
        place = where if isinstance(where, str) else where()
        shown = tuple(None if text is None else _excerpt(text, 0) for text in texts)
        example = DroppedExample(where=place, texts=shown)
        self._examples[reason] = (*self._examples.get(reason, ()), example)

    def report(self) -> CorpusReport:
        """What has been counted so far."""
        return CorpusReport(
            name=self.name,
            read=self.read,
            kept=self._kept,
            dropped=dict(self._dropped),
            examples=dict(self._examples),
        )


class _Checked(NamedTuple):
    tokens: int
    words: int
    failure: RoundTripFailure | None


class SideTally:
    """Counts the tokens of one side's texts, and tries the round trip with some of them.

    These are every text until there are 10,000, and then every second, fourth, and so on of all texts: between 5,000
    and 10,000, the same whatever the sizes in which texts are added.

    Args:
        name: ``source``, ``target`` or ``text``.
        tokenizer: What cuts the texts.
        max_checked: At most so many texts are checked; two or more.
    """

    def __init__(self, name: str, tokenizer: Tokenizer, *, max_checked: int = MAX_CHECKED) -> None:
        assert max_checked >= 2
        self.name = name
        self._tokenizer = tokenizer
        self._max_checked = max_checked
        self._lengths = LengthTally()
        self._num_texts = self._unknown = 0
        self._checked: list[_Checked] = []
        self._stride = 1

    def add(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        """Count texts whose token ids, without begin and end, are `ids`."""
        assert len(texts) == len(ids)
        self._lengths.add(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)))
        unknown_id = self._tokenizer.unk_id
        if unknown_id is not None:
            self._unknown += sum(row.count(unknown_id) for row in ids)
        first, self._num_texts = self._num_texts, self._num_texts + len(texts)
        number = -(-first // self._stride) * self._stride
        while number < self._num_texts:
            if len(self._checked) == self._max_checked:
                self._checked = self._checked[::2]
                self._stride *= 2
            if number % self._stride == 0:
                self._checked.append(self._check(texts[number - first], ids[number - first]))
            number = (number // self._stride + 1) * self._stride

    def report(self) -> SideReport:
        """What has been counted so far."""
        failures = [checked.failure for checked in self._checked if checked.failure is not None]
        return SideReport(
            name=self.name,
            lengths=self._lengths.histogram(),
            unknown=self._unknown,
            checked=len(self._checked),
            checked_tokens=sum(checked.tokens for checked in self._checked),
            words=sum(checked.words for checked in self._checked),
            round_trip_failures=len(failures),
            failures=tuple(failures[:MAX_EXAMPLES]),
        )

    def _check(self, text: str, ids: Sequence[int]) -> _Checked:
        expected, decoded = self._tokenizer.normalize(text), self._tokenizer.decode(ids)
        failure = None
        if decoded != expected:
            start = _start_of_difference(expected, decoded)
            failure = RoundTripFailure(text=_excerpt(expected, start), decoded=_excerpt(decoded, start))
        return _Checked(len(ids), len(text.split()), failure)


def _start_of_difference(one: str, other: str) -> int:
    """Where to start showing two texts, so that their first difference is seen and both are shown from one place."""
    if max(len(one), len(other)) <= MAX_SHOWN:
        return 0
    pairs = enumerate(zip(one, other, strict=False))
    place = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    return max(0, place - _CONTEXT)


def _excerpt(text: str, start: int) -> str:
    """At most 200 characters from `start` on; what is cut off on either side is shown as ``…``."""
    shown = ("…" if start else "") + text[start : start + MAX_SHOWN]
    if len(shown) > MAX_SHOWN or start + MAX_SHOWN < len(text):
        shown = shown[: MAX_SHOWN - 1] + "…"
    # Lone surrogates cannot be written to any file in UTF-8.
    return shown.encode("utf-8", "replace").decode("utf-8")
