"""Where the rows of a corpus come from: one source for each split, made of shards that are read row by row.

A row is one text (for a language model) or two (source and target); None stands for a missing one. Nothing is held in
memory, and every row keeps the number it has in its file, whatever is left out before it.
"""

import itertools
import json
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple, assert_never

import xxhash

from transformer.data.config import TextDataConfig, TranslationDataConfig
from transformer.data.corpora import phrases
from transformer.data.corpora.document_config import (
    DocumentCorpusConfig,
    HubTextConfig,
    JsonlTextConfig,
    ParquetTextConfig,
    PlainTextConfig,
    PythonDocsConfig,
    TextMixtureConfig,
)
from transformer.data.corpora.files import count_lines, find_files, fingerprint, match_shards
from transformer.data.corpora.pair_config import (
    CsvConfig,
    HubPairsConfig,
    JsonlConfig,
    MixtureConfig,
    PairCorpusConfig,
    ParallelTextConfig,
    ParquetConfig,
    PhrasesConfig,
    TmxConfig,
    TsvConfig,
)
from transformer.data.corpora.readers import read_jsonl, read_parallel, read_tsv
from transformer.data.corpora.rows import Row, Shard, Split, listed
from transformer.data.corpora.running_text import text_shards
from transformer.data.corpora.tables import count_parquet_rows, read_csv, read_parquet
from transformer.data.corpora.tmx import read_tmx

CorpusConfig = PairCorpusConfig | DocumentCorpusConfig


class Source(NamedTuple):
    """A split of one corpus.

    Attributes:
        name: what the corpus is called in messages.
        shards: its parts, in order.
        num_sides: texts of a row.
    """

    name: str
    shards: tuple[Shard, ...]
    num_sides: int

    def identity(self) -> str:
        """Changes when the content does; nothing is read but the edges of files."""
        return json.dumps([shard.identity for shard in self.shards])

    def num_rows(self) -> int | None:
        """Number of rows, or None where only reading them all would tell."""
        if any(shard.count_rows is None for shard in self.shards):
            return None
        return sum(shard.count_rows() for shard in self.shards if shard.count_rows is not None)

    @property
    def counting_checks(self) -> bool:
        """Whether :meth:`num_rows` also finds faults: parallel files of unequal length."""
        return any(shard.counting_checks for shard in self.shards)

    def rows(self) -> Iterator[tuple[int, Row | ValueError]]:
        """All rows, each with its :func:`place`."""
        for number, shard in enumerate(self.shards):
            for row_number, row in enumerate(shard.read()):
                yield place(number, row_number), row

    def where(self, at: int) -> str:
        """File and line (or row) of a :func:`place`, for messages."""
        shard, row = divmod(at, 1 << 40)
        return self.shards[shard].where(row)


def place(shard: int, row: int) -> int:
    """One number for a row of a source: which shard, and which row of it."""
    return shard << 40 | row


def pair_corpora(config: TranslationDataConfig) -> dict[str, PairCorpusConfig]:
    """The single corpora that ``data`` stands for, by name."""
    return dict(config.corpora) if isinstance(config, MixtureConfig) else {config.name: config}


def document_corpora(config: TextDataConfig) -> dict[str, DocumentCorpusConfig]:
    """The single corpora that ``data`` stands for, by name."""
    return dict(config.corpora) if isinstance(config, TextMixtureConfig) else {config.name: config}


def open_source(name: str, config: CorpusConfig, split: Split, *, streaming: bool = False) -> Source | None:
    """A split of a corpus, or None if it has no such split.

    Raises:
        ValueError: A file is missing, files of two sides do not match, or a data set has no such split.
    """
    match config:
        case PhrasesConfig():
            settings = config.model_dump_json(exclude={"bleu_tokenize", "filters", "tag"})
            made_by = [version(package) for package in ("babel", "num2words")]
            code = xxhash.xxh3_128_hexdigest(Path(phrases.__file__).read_bytes())
            identity = f"phrases {split} {settings} {made_by} {code}"
            read = partial(_generated, config, split)
            counts = {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}
            return Source(name, (Shard(read, partial(int, counts[split]), "phrase {}", 1, identity),), 2)
        case PythonDocsConfig():
            texts = tuple(topics[topic] for topic in sorted(topics) if phrases.hashed_split(f"topic {topic}") == split)
            identity = f"python_docs {xxhash.xxh3_128_hexdigest(json.dumps(texts).encode())}"
            return Source(name, (Shard(partial(listed, texts), partial(len, texts), "topic {}", 1, identity),), 1)
        case PlainTextConfig():
            shards = text_shards(config, split)
            return None if shards is None else Source(name, shards, 1)
        case HubPairsConfig() | HubTextConfig():
            from transformer.data.corpora.hub import hub_shard  # late: `datasets` takes a second to import

            fields = _fields(config)
            shard = hub_shard(config, split, fields, streaming=streaming)
            return None if shard is None else Source(name, (shard,), len(fields))
        case ParallelTextConfig():
            sources, targets = {
                "train": (config.train_source, config.train_target),
                "validation": (config.validation_source, config.validation_target),
                "test": (config.test_source, config.test_target),
            }[split]
            if sources is None or targets is None:
                return None
            pairs = match_shards(Path(config.folder), sources, targets)
            return Source(name, tuple(_parallel(*pair) for pair in pairs), 2)
        case _:
            files = {"train": config.train, "validation": config.validation, "test": config.test}[split]
            if files is None:
                return None
            paths = find_files(Path(config.folder), files)
            return Source(name, tuple(_file(config, path) for path in paths), len(_fields(config)))


def _fields(config: CorpusConfig) -> tuple[str, ...]:
    if isinstance(config, HubTextConfig | JsonlTextConfig | ParquetTextConfig):
        return (config.text_field,)
    if isinstance(config, HubPairsConfig | JsonlConfig | ParquetConfig):
        return (config.source_field, config.target_field)
    return ("source", "target")


def _parallel(source: Path, target: Path) -> Shard:
    return Shard(
        partial(read_parallel, (source, target)),
        partial(_equal_lines, source, target),
        f"{str(source)!r}, line {{}}",
        1,
        f"parallel {fingerprint(source)} {fingerprint(target)}",
        counting_checks=True,
    )


def _equal_lines(source: Path, target: Path) -> int:
    num_source, num_target = count_lines(source), count_lines(target)
    if num_source != num_target:
        raise ValueError(
            f"Two parallel files must have equally many lines, but {str(source)!r} has {num_source} "
            f"and {str(target)!r} has {num_target}."
        )
    return num_source


FileConfig = TsvConfig | CsvConfig | JsonlConfig | ParquetConfig | TmxConfig | JsonlTextConfig | ParquetTextConfig


def _file(config: FileConfig, path: Path) -> Shard:
    file, found = str(path), fingerprint(path)
    match config:
        case TsvConfig():
            columns = _columns(config)
            header = isinstance(config.source_column, str)
            read = partial(read_tsv, path, columns)
            count = partial(_lines_after, path, int(header))
            return Shard(read, count, f"{file!r}, line {{}}", 1 + header, f"tsv {columns} {found}")
        case CsvConfig():
            columns = _columns(config)
            read = partial(read_csv, path, columns, config.delimiter)
            return Shard(read, None, f"{file!r}, record {{}}", 1, f"csv {columns} {config.delimiter} {found}")
        case JsonlConfig() | JsonlTextConfig():
            fields = _fields(config)
            read, count = partial(read_jsonl, path, fields), partial(count_lines, path)
            return Shard(read, count, f"{file!r}, line {{}}", 1, f"jsonl {fields} {found}")
        case ParquetConfig() | ParquetTextConfig():
            fields = _fields(config)
            read, count = partial(read_parquet, path, fields), partial(count_parquet_rows, path)
            return Shard(read, count, f"{file!r}, row {{}}", 1, f"parquet {fields} {found}")
        case TmxConfig():
            languages = (config.source_language, config.target_language)
            return Shard(
                partial(read_tmx, path, languages), None, f"{file!r}, unit {{}}", 1, f"tmx {languages} {found}"
            )
        case _:
            assert_never(config)


def _columns(config: TsvConfig | CsvConfig) -> tuple[int, int] | tuple[str, str]:
    match config.source_column, config.target_column:
        case int(source), int(target):
            return source, target
        case source, target:
            return str(source), str(target)


def _lines_after(path: Path, num_header_lines: int) -> int:
    return count_lines(path) - num_header_lines


def _generated(config: PhrasesConfig, split: Split, skip: int = 0) -> Iterator[Row]:
    yield from itertools.islice(phrases.generate_phrases(config, split), skip, None)
