"""Rows of a corpus, and the shards that give them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

Split = Literal["train", "validation", "test"]

Row = tuple[str | None, ...]
"""One text, or a source and a target; None where there is none."""


class ReadRows(Protocol):
    """Reads the rows of a shard from the one with number `skip` on."""

    def __call__(self, *, skip: int = 0) -> Iterator[Row | ValueError]:
        """Give every row; one that cannot be read as the ValueError that says why, so that it keeps its number."""
        ...


def listed(texts: Sequence[str], *, skip: int = 0) -> Iterator[Row]:
    """Rows of texts in memory."""
    for text in texts[skip:]:
        yield (text,)


class Shard(NamedTuple):
    """A part of a corpus: a file, two parallel files, a split of a data set.

    Attributes:
        read: reads the rows; raises ValueError for what makes the whole shard unusable.
        count_rows: finds the number of rows much faster than by reading them, or None.
        location: names a row for messages, with ``{}`` for its number.
        first: the number of the first row in such a message.
        identity: changes when the rows do.
        counting_checks: whether counting also finds faults, as in parallel files of different lengths.
    """

    read: ReadRows
    count_rows: Callable[[], int] | None
    location: str
    first: int
    identity: str
    counting_checks: bool = False

    def where(self, row: int) -> str:
        """File and line of a row, counted from 0."""
        return self.location.replace("{}", str(row + self.first))
