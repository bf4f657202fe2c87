"""Splits of corpora from files and from code: which rows they have, how many, and where each comes from."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from transformer.data.corpora.document_config import (
    JsonlTextConfig,
    ParquetTextConfig,
    PythonDocsConfig,
    TextMixtureConfig,
)
from transformer.data.corpora.pair_config import (
    CsvConfig,
    JsonlConfig,
    MixtureConfig,
    ParallelTextConfig,
    ParquetConfig,
    PhrasesConfig,
    TmxConfig,
    TsvConfig,
)
from transformer.data.corpora.sources import CorpusConfig, Source, document_corpora, open_source, pair_corpora
from transformer.data.text_data import read_documents
from transformer.data.translation_data import read_pairs

PAIRS = [("a house", "ein Haus"), ("a cat", "eine Katze"), ("two", "zwei")]
SPLITS = ("train", "validation", "test")
TrainingRows = Callable[..., Any]


def opened(config: CorpusConfig, split: str = "train") -> Source:
    source = open_source("news", config, split)
    assert source is not None
    return source


def rows_of(config: CorpusConfig) -> list[Any]:
    """The rows of every split, None where there is none."""
    sources = [open_source("news", config, split) for split in SPLITS]
    return [None if source is None else [row for _, row in source.rows()] for source in sources]


def text_files(folder: Path, suffix: str = "", **splits: list[tuple[str, str]]) -> ParallelTextConfig:
    files = {}
    for split, pairs in splits.items():
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            content = "".join(line + "\n" for line in lines).encode()
            files[f"{split}_{side}"] = f"{split}.{side}{suffix}"
            (folder / f"{split}.{side}{suffix}").write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return ParallelTextConfig(folder=str(folder), **files)


def parquet(path: Path, pairs: list[tuple[str, str]]) -> None:
    """Nested texts beside a column of numbers."""
    nested = [{"en": source, "de": target} for source, target in pairs]
    pa.parquet.write_table(pa.table({"translation": nested, "id": list(range(len(pairs)))}), path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_parallel_text(tmp_path: Path, suffix: str) -> None:
    config = text_files(tmp_path, suffix, train=PAIRS, validation=PAIRS[:2], test=PAIRS[1:])
    assert rows_of(config) == [PAIRS, PAIRS[:2], PAIRS[1:]]


def test_without_a_test_set_there_is_none(tmp_path: Path) -> None:
    config = text_files(tmp_path, train=PAIRS, validation=PAIRS)
    assert open_source("news", config, "test") is None
    assert read_pairs(config, "test") is None
    assert open_source("news", text_files(tmp_path, train=PAIRS), "validation") is None


def test_relative_paths_start_from_the_folder_and_absolute_ones_do_not(tmp_path: Path) -> None:
    config = text_files(tmp_path, train=PAIRS, validation=PAIRS)
    moved = config.model_copy(update={"folder": "elsewhere", "train_source": str(tmp_path / "train.source")})
    with pytest.raises(ValueError, match=r"The file 'elsewhere/train\.target' does not exist\."):
        open_source("news", moved, "train")
    both = moved.model_copy(update={"train_target": str(tmp_path / "train.target")})
    assert [row for _, row in opened(both).rows()] == PAIRS


def test_tsv(tmp_path: Path) -> None:
    body = "".join(f"{k}\t{target}\t{source}\n" for k, (source, target) in enumerate(PAIRS))
    (tmp_path / "plain.tsv").write_text(body)
    (tmp_path / "header.tsv.gz").write_bytes(gzip.compress(("id\tde\ten\n" + body).encode()))
    by_number = {"train": "plain.tsv", "validation": "plain.tsv", "source_column": 2, "target_column": 1}
    by_name = dict.fromkeys(SPLITS, "header.tsv.gz") | {"source_column": "en", "target_column": "de"}
    assert rows_of(TsvConfig(folder=str(tmp_path), **by_number)) == [PAIRS, PAIRS, None]
    assert rows_of(TsvConfig(folder=str(tmp_path), **by_name)) == [PAIRS] * 3


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('de;en\n"ein; Haus";"a ""house"""\nzwei;two\n')
    config = CsvConfig(
        folder=str(tmp_path), train="a.csv", delimiter=";", source_column="en", target_column="de", test="a.csv"
    )
    expected = [('a "house"', "ein; Haus"), ("two", "zwei")]
    assert rows_of(config) == [expected, None, expected]


def test_jsonl(tmp_path: Path) -> None:
    lines = [json.dumps({"t": {"en": source, "de": target}}) + "\n" for source, target in PAIRS]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    files = {"folder": str(tmp_path), "train": "a.jsonl", "validation": "a.jsonl"}
    assert rows_of(JsonlConfig(**files, source_field="t.en", target_field="t.de")) == [PAIRS, PAIRS, None]
    texts = [(source,) for source, _ in PAIRS]
    assert rows_of(JsonlTextConfig(**files, text_field="t.en")) == [texts, texts, None]


def test_parquet(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", PAIRS)
    files = {"folder": str(tmp_path), "train": "a.parquet", "validation": "a.parquet"}
    fields = {"source_field": "translation.en", "target_field": "translation.de"}
    assert rows_of(ParquetConfig(**files, **fields)) == [PAIRS, PAIRS, None]
    assert rows_of(ParquetTextConfig(**files, text_field="translation.de"))[0] == [(target,) for _, target in PAIRS]

    pa.parquet.write_table(pa.table({"target": ["x"], "source": ["y"]}), tmp_path / "b.parquet")
    swapped = ParquetConfig(folder=str(tmp_path), train="b.parquet", source_field="target", target_field="source")
    assert rows_of(swapped)[0] == [("x", "y")]


@pytest.mark.parametrize(
    ("file", "field", "message"),
    [
        (
            "a.parquet",
            "translation.fr",
            r"'.*a\.parquet'.* no field 'translation\.fr'; there are 'translation\.en', 'translation\.de', 'id'",
        ),
        ("a.parquet", "id", r"'id' of '.*a\.parquet' must be text, but is int64\."),
        ("none.parquet", "id", r"The file '.*none\.parquet' does not exist\."),
        ("bad.parquet", "id", r"The file '.*bad\.parquet' cannot be read as Parquet"),
    ],
)
def test_parquet_faults(tmp_path: Path, training_rows: TrainingRows, file: str, field: str, message: str) -> None:
    parquet(tmp_path / "a.parquet", PAIRS)
    (tmp_path / "bad.parquet").write_bytes(b"no parquet at all")
    config = ParquetConfig(folder=str(tmp_path), train=file, validation=file, source_field=field, target_field="x")
    with pytest.raises(ValueError, match=message):
        training_rows(config)
    with pytest.raises(ValueError, match=message):
        read_pairs(config, "validation")


def test_tmx(tmp_path: Path) -> None:
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{target}</seg></tuv><tuv xml:lang="en-US"><seg>{source}</seg></tuv></tu>'
        for source, target in PAIRS
    )
    (tmp_path / "a.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')
    config = TmxConfig(folder=str(tmp_path), train="a.tmx", source_language="en", target_language="de")
    assert rows_of(config) == [PAIRS, None, None]


def test_several_files_are_one_split_in_their_order(tmp_path: Path) -> None:
    for number in (10, 2):
        (tmp_path / f"part-{number}.tsv").write_text(f"source {number}\ttarget {number}\n")
    config = TsvConfig(folder=str(tmp_path), train="part-*.tsv", validation=("part-10.tsv", "part-2.tsv"))
    two, ten = [("source 2", "target 2")], [("source 10", "target 10")]
    assert rows_of(config) == [two + ten, ten + two, None]


def test_phrases_are_all_there() -> None:
    config = PhrasesConfig(num_train=30, num_validation=20, num_test=10)
    assert [len(set(rows)) for rows in rows_of(config)] == [30, 20, 10]


def test_made_corpora_begin_at_any_row() -> None:
    for config in (PhrasesConfig(num_train=30), PythonDocsConfig()):
        [shard] = opened(config).shards
        whole = list(shard.read())
        assert len(whole) >= 30
        assert [list(shard.read(skip=skip)) for skip in (1, 29, len(whole))] == [whole[1:], whole[29:], []]


def test_python_docs_are_split_by_topic() -> None:
    config = PythonDocsConfig()
    train, validation, test = ({text for (text,) in rows} for rows in rows_of(config))
    assert train | validation | test == set(topics.values())
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(train) > 4 * max(len(validation), len(test)) > 0
    assert topics["assert"] in train
    assert topics["break"] in validation
    assert topics["binary"] in test
    assert set(read_documents(config, "test") or []) == test


def written(folder: Path, kind: str, numbers: range) -> CorpusConfig:
    """Two files whose row k says k on both sides; there is a header where there can be one."""
    half = len(numbers) // 2
    for name, part in (("a", numbers[:half]), ("b", numbers[half:])):
        lines = [f"source {k}\ttarget {k}\n" for k in part]
        (folder / f"{name}.tsv").write_text("source\ttarget\n" + "".join(lines))
        (folder / f"{name}.csv").write_text("source,target\n" + "".join(lines).replace("\t", ","))
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps({"source": f"source {k}", "target": f"target {k}"}) + "\n" for k in part)
        )
        sides = {side: [f"{side} {k}" for k in part] for side in ("source", "target")}
        pa.parquet.write_table(pa.table(sides), folder / f"{name}.parquet")
        for side, texts in sides.items():
            (folder / f"{name}.{side}").write_text("".join(text + "\n" for text in texts))
    files = {"folder": str(folder), "train": (f"a.{kind}", f"b.{kind}")}
    names = {"source_column": "source", "target_column": "target"}
    match kind:
        case "tsv":
            return TsvConfig(**files, **names)
        case "csv":
            return CsvConfig(**files, **names)
        case "jsonl":
            return JsonlConfig(**files)
        case "parquet":
            return ParquetConfig(**files)
    return ParallelTextConfig(folder=str(folder), train_source="*.source", train_target="*.target")


@pytest.mark.parametrize(
    ("kind", "where", "count"),
    [
        ("lines", "'{}/b.source', line 3", 9),
        ("tsv", "'{}/b.tsv', line 4", 9),
        ("csv", "'{}/b.csv', record 3", None),
        ("jsonl", "'{}/b.jsonl', line 3", 9),
        ("parquet", "'{}/b.parquet', row 3", 9),
    ],
)
def test_a_place_names_file_and_line(tmp_path: Path, kind: str, where: str, count: int | None) -> None:
    source = opened(written(tmp_path, kind, range(9)))
    rows = list(source.rows())
    assert [row for _, row in rows] == [(f"source {k}", f"target {k}") for k in range(9)]
    assert len({at for at, _ in rows}) == 9
    assert source.where(rows[6][0]) == where.format(tmp_path)  # the third of the second file, counted from 1
    assert source.num_rows() == count
    for shard in source.shards:
        whole = list(shard.read())
        assert [list(shard.read(skip=skip)) for skip in range(6)] == [whole[skip:] for skip in range(6)]


def test_the_fast_count_compares_parallel_files(tmp_path: Path) -> None:
    config = text_files(tmp_path, train=PAIRS)
    (tmp_path / "train.target").write_text("nur eine\n")
    with pytest.raises(
        ValueError, match=r"equally many lines, but '.*train\.source' has 3 and '.*train\.target' has 1"
    ):
        opened(config).num_rows()


@pytest.mark.parametrize("kind", ["lines", "tsv", "csv", "jsonl", "parquet"])
def test_the_identity_changes_with_a_file_and_only_then(tmp_path: Path, kind: str) -> None:
    config = written(tmp_path, kind, range(9))
    before = opened(config).identity()
    assert opened(config).identity() == before
    file = tmp_path / {"lines": "b.target"}.get(kind, f"b.{kind}")
    content = file.read_bytes()
    file.write_bytes(content.replace(b"8", b"7", 1))
    changed = opened(config).identity()
    assert changed != before
    file.write_bytes(content)
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert opened(config).identity() not in (before, changed)


def test_the_identity_depends_on_what_is_read_of_a_file(tmp_path: Path) -> None:
    written(tmp_path, "tsv", range(4))
    files = {"folder": str(tmp_path), "train": "a.tsv"}
    columns = [(0, 1), (1, 0), ("source", "target")]
    configs = [TsvConfig(**files, source_column=source, target_column=target) for source, target in columns]
    assert len({opened(config).identity() for config in configs}) == 3
    phrases = [PhrasesConfig(num_train=9, seed=seed) for seed in (1, 2)]
    assert len({opened(config, split).identity() for config in phrases for split in SPLITS}) == 6
    tagged = PhrasesConfig(num_train=9, seed=1, tag="<2de>")  # the same rows
    assert opened(tagged).identity() == opened(phrases[0]).identity()


def test_single_corpora_of_a_mixture_have_their_names() -> None:
    phrases, docs = PhrasesConfig(num_train=9), PythonDocsConfig()
    assert pair_corpora(phrases) == {"phrases": phrases}
    assert pair_corpora(MixtureConfig(corpora={"a": phrases, "b": phrases})) == {"a": phrases, "b": phrases}
    assert document_corpora(docs) == {"python_docs": docs}
    assert document_corpora(TextMixtureConfig(corpora={"c": docs})) == {"c": docs}
