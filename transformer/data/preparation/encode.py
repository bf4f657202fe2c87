"""From the files of a corpus to token ids on disk: filtered and cut into subwords once, found at the next start."""

import itertools
import json
import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import regex
import tokenizers as library

from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.files import cut_at_words
from transformer.data.corpora.rows import Row
from transformer.data.corpora.sources import CorpusConfig, Source
from transformer.data.preparation.arrow import TEXT, IdTable, TableWriter, TextTable, id_type
from transformer.data.preparation.cache import Cache, checksum_of
from transformer.data.preparation.filters import Filters
from transformer.data.preparation.report import CorpusReport, CorpusTally, SideReport, SideTally
from transformer.data.subwords.tokenizer import Tokenizer

log = logging.getLogger(__name__)

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


class EncodedCorpus(NamedTuple):
    """One corpus ready for training.

    Attributes:
        ids: token ids; those of documents have their marks already.
        texts: what they were made from.
        sides: what the tokenizer made of each side.
        checksum: changes when any id does.
    """

    ids: IdTable
    texts: TextTable
    sides: tuple[SideReport, ...]
    checksum: str


def kept_rows(source: Source, config: CorpusConfig, tally: CorpusTally) -> Iterator[tuple[int, Row]]:
    """The rows of a training split that its filters keep, with their places; the others are counted.

    Raises:
        ValueError: A row cannot be read, and `filters.broken` is ``error``.
    """
    filters = None if is_running_text(config) else Filters(config.filters)
    for place, row in source.rows():
        if isinstance(row, ValueError):
            if config.filters.broken == "error":
                raise row
            tally.drop("broken", str(row))
            continue
        reason = None if filters is None else filters.reason(row)
        if reason is None:
            tally.keep()
            yield place, row
        else:
            tally.drop(reason, partial(source.where, place), row)


def is_running_text(config: CorpusConfig) -> bool:
    """Whether the rows are no documents but pieces of one text, of which nothing may be left out."""
    return isinstance(config, PlainTextConfig) and config.documents == "running"


def prepare_texts(source: Source, config: CorpusConfig, cache: Cache, progress: Progress) -> Texts:
    """The texts of a training split that its filters keep.

    Raises:
        ValueError: A file or a row cannot be read, or nothing is left.
    """

    def build(folder: Path) -> None:
        tally = CorpusTally(source.name)
        total, done, characters = source.num_rows(), 0, 0
        rows: list[Row] = []
        places: list[int] = []
        with TableWriter(folder / "texts.arrow", source.num_sides, TEXT) as writer:
            for place, row in kept_rows(source, config, tally):
                rows.append(row)
                places.append(place)
                characters += sum(map(len, filter(None, row)))
                if len(rows) == ROWS or characters > CHARACTERS:
                    writer.write(list(zip(*rows, strict=True)), places)
                    done += len(rows)
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


def prepare_ids(
    texts: Texts, tokenizers: Sequence[Tokenizer], cache: Cache, progress: Progress, *, mark_documents: bool
) -> EncodedCorpus:
    """Token ids of all texts.

    Args:
        texts: what to cut.
        tokenizers: one for each side.
        cache: where the ids are kept.
        progress: told how far it is.
        mark_documents: put each text between start and end tokens.
    """
    table, name = texts.table, texts.report.name

    def build(folder: Path) -> None:
        tallies = [SideTally(side, tokenizer) for side, tokenizer in zip(_sides(table), tokenizers, strict=True)]
        kind = id_type(max(tokenizer.vocab_size for tokenizer in tokenizers))
        done = 0
        with TableWriter(folder / "ids.arrow", table.num_sides, kind) as writer:
            for batch in table.batches():
                sides = []
                for number, (tokenizer, tally) in enumerate(zip(tokenizers, tallies, strict=True)):
                    column = batch.column(number).to_pylist()
                    ids = encode_all(tokenizer, column)
                    tally.add(column, ids)
                    if mark_documents:
                        ids = [[tokenizer.bos_id, *row, tokenizer.eos_id] for row in ids]
                    sides.append(ids)
                writer.write(sides, batch.column(table.num_sides).to_pylist())
                done += batch.num_rows
                progress(f"cutting {name} into subwords", done, len(table))
        plain = [tally.report().to_plain() for tally in tallies]
        (folder / "report.json").write_text(json.dumps(plain), encoding="utf-8")

    depends_on = {
        "format": FORMAT,
        "texts": texts.folder.name,
        "library": library.__version__,
        "tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers],
        "mark_documents": mark_documents,
    }
    folder = cache.get("ids", depends_on, build)
    reports = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return EncodedCorpus(
        IdTable(folder / "ids.arrow"),
        table,
        tuple(SideReport.from_plain(report) for report in reports),
        checksum_of(folder, "ids.arrow"),
    )


def _sides(table: TextTable) -> tuple[str, ...]:
    return ("source", "target") if table.num_sides == 2 else ("text",)


def encode_all(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, with bounded memory beside the result: a tokenizer takes a hundred bytes a character."""
    ids: list[list[int]] = []
    start, characters, limit = 0, 0, CHARACTERS // 4
    cuts_long = any(len(text) > limit for text in texts) and tokenizer.cuts_at_words
    for number, text in enumerate(texts):
        if cuts_long and len(text) > limit:
            ids += tokenizer.encode_batch(texts[start:number])
            parts = (tokenizer.encode_batch([part])[0] for part in cut_at_words(text, limit // 2))
            ids.append(list(itertools.chain.from_iterable(parts)))
            start, characters = number + 1, 0
            continue
        characters += len(text)
        if characters > limit:
            ids += tokenizer.encode_batch(texts[start : number + 1])
            start, characters = number + 1, 0
    return ids + tokenizer.encode_batch(texts[start:])


def column_of(tables: Iterable[TextTable], side: int) -> Iterator[str]:
    """One side of all rows of some tables, for training a tokenizer."""
    for table in tables:
        for batch in table.batches():
            yield from batch.column(side).to_pylist()


def read_all(source: Source, *, keep_blank: bool = False) -> list[tuple[str, ...]]:
    """A validation or test split, in memory. Of pairs every row is there; blank documents are left out, and counted.

    Args:
        source: the split.
        keep_blank: blank documents are pieces of running text, and stay.

    Raises:
        ValueError: A row cannot be read or lacks a side, or the split is empty.
    """
    rows: list[tuple[str, ...]] = []
    num_blank = 0
    for place, row in source.rows():
        if isinstance(row, ValueError):
            raise row
        if not keep_blank and source.num_sides == 1 and (row[0] is None or not row[0].strip()):
            num_blank += 1
            continue
        texts = tuple(text for text in row if text is not None)
        if len(texts) < len(row):
            side = ("source", "target")[row.index(None)]
            raise ValueError(f"Every pair to be scored must have two sides, but {source.where(place)} has no {side}.")
        rows.append(texts)
    if num_blank:
        log.warning(
            "%s: left out %d blank of %d documents to be scored.", source.name, num_blank, num_blank + len(rows)
        )
    if not rows:
        raise ValueError(f"A split to be scored must have examples, but that of {source.name} has none.")
    return rows
