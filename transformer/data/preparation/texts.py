"""The training texts of a corpus on disk: read and filtered once, found again at the next start."""

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import regex

from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.rows import Row
from transformer.data.corpora.sources import CorpusConfig, Source
from transformer.data.preparation.arrow import TEXT, TableWriter, TextTable
from transformer.data.preparation.cache import Cache
from transformer.data.preparation.filters import Filters
from transformer.data.preparation.report import CorpusReport, CorpusTally

Progress = Callable[[str, int, int | None], None]
"""Told what is going on, how many examples are done, and of how many in all (None: unknown)."""

FORMAT = 1  # of the files below; a new number makes all caches anew
ROWS = 10_000  # written at once
CHARACTERS = 4_000_000  # of texts held at once; long documents make fewer rows


class Texts(NamedTuple):
    """The training texts of one corpus, filtered.

    Attributes:
        folder: where the table is.
        table: the rows that are left.
        report: what was left out.
    """

    folder: Path
    table: TextTable
    report: CorpusReport


class RowFilter:
    """Decides on the rows of a training split, one after the other: those that cannot be read, and those to leave out.

    Pieces of running text are no documents: none of them is left out.
    """

    def __init__(self, config: CorpusConfig) -> None:
        is_running_text = isinstance(config, PlainTextConfig) and config.documents == "running"
        self._filters = None if is_running_text else Filters(config.filters)
        self._refuses_broken = config.filters.broken == "error"

    def reason(self, row: Row | ValueError) -> str | None:
        """Why a row is left out, or None if it is kept.

        Raises:
            ValueError: The row cannot be read, and `filters.broken` is ``error``.
        """
        if isinstance(row, ValueError):
            if self._refuses_broken:
                raise row
            return "broken"
        return None if self._filters is None else self._filters.reason(row)


def kept_rows(source: Source, config: CorpusConfig, tally: CorpusTally) -> Iterator[tuple[int, Row]]:
    """The rows of a training split that are kept, with their places; the others are counted.

    Raises:
        ValueError: A row cannot be read, and `filters.broken` is ``error``.
    """
    row_filter = RowFilter(config)
    for place, row in source.rows():
        reason = row_filter.reason(row)
        if isinstance(row, ValueError):
            tally.drop("broken", str(row))
        elif reason is not None:
            tally.drop(reason, partial(source.where, place), row)
        else:
            tally.keep()
            yield place, row


def prepare_texts(source: Source, config: CorpusConfig, cache: Cache, progress: Progress) -> Texts:
    """The texts of a training split that its filters keep.

    Raises:
        ValueError: A file or a row cannot be read, or nothing is left.
    """

    def build(folder: Path) -> None:
        tally = CorpusTally(source.name)
        total, characters = source.num_rows(), 0
        rows: list[Row] = []
        places: list[int] = []
        with TableWriter(folder / "texts.arrow", source.num_sides, TEXT) as writer:
            for place, row in kept_rows(source, config, tally):
                rows.append(row)
                places.append(place)
                characters += sum(map(len, filter(None, row)))
                if len(rows) == ROWS or characters > CHARACTERS:
                    writer.write(list(zip(*rows, strict=True)), places)
                    characters = 0
                    rows.clear()
                    places.clear()
                    progress(f"reading {source.name}", tally.read, total)
            writer.write(list(zip(*rows, strict=True)), places)
        progress(f"reading {source.name}", tally.read, tally.read)
        if tally.kept == 0:
            raise ValueError(f"The training split of {source.name} must have examples, but {_nothing(tally)}.")
        (folder / "report.json").write_text(json.dumps(tally.report().to_plain()), encoding="utf-8")

    depends_on = {
        "format": FORMAT,
        "source": source.identity(),
        "filters": config.filters.to_plain(),
        "unicode": [regex.__version__, unicodedata.unidata_version],
    }
    folder = cache.get("texts", depends_on, build)
    report = CorpusReport.from_plain(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    return Texts(folder, TextTable(folder / "texts.arrow"), report.model_copy(update={"name": source.name}))


def _nothing(tally: CorpusTally) -> str:
    report = tally.report()
    if report.read == 0:
        return "is empty"
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
    return f"none of {report.read:,} is left ({dropped})"


def column_of(tables: Iterable[TextTable], side: int) -> Iterator[str]:
    """One side of all rows of some tables, for training a tokenizer."""
    for table in tables:
        for batch in table.batches():
            yield from batch.column(side).to_pylist()
