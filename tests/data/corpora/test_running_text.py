"""Text files for a language model: running text, whole files, lines, and the cut for validation."""

import gzip
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from transformer.data.corpora import files, running_text
from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.sources import open_source
from transformer.data.preparation.report import CorpusReport
from transformer.data.text_data import read_documents

TrainingRows = Callable[..., tuple[list[tuple[str, ...]], CorpusReport]]


def joined(rows: list[tuple[str, ...]]) -> str:
    return "".join(text for (text,) in rows)


def test_validation_fraction_cuts_characters(tmp_path: Path, training_rows: TrainingRows) -> None:
    text = "".join(chr(0x4E00 + k) for k in range(1003)) + "\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=0.1)
    assert joined(training_rows(config)[0]) == text[:904]  # int(1005 * 0.9)
    assert "".join(read_documents(config, "validation") or []) == text[904:]
    assert read_documents(config, "test") is None


def test_validation_fraction_cuts_through_several_files(tmp_path: Path, training_rows: TrainingRows) -> None:
    text = "one line\n" * 30
    for number, part in enumerate((text[:100], text[100:101], text[101:200], text[200:])):
        (tmp_path / f"part-{number}.txt").write_text(part)
    for rest in (1, 99, 100, 101, 102, 150, 199, 200, 201, 269):
        fraction = 1 - (rest + 0.5) / len(text)
        config = PlainTextConfig(folder=str(tmp_path), train="part-*.txt", validation_fraction=fraction)
        assert joined(training_rows(config)[0]) == text[:rest]
        assert "".join(read_documents(config, "validation") or []) == text[rest:]


def test_validation_fraction_of_lines_cuts_before_a_line(
    tmp_path: Path, training_rows: TrainingRows, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text("aaaa\n\nbbbb\ncccc\n")  # 16 characters
    for fraction, train, read in ((0.35, ["aaaa"], 2), (0.3125, ["aaaa", "bbbb"], 3), (0.25, ["aaaa", "bbbb"], 3)):
        config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=fraction, documents="line")
        rows, report = training_rows(config)
        assert rows == [(line,) for line in train]
        assert (report.read, report.dropped) == (read, {"blank": 1})
        assert read_documents(config, "validation") == [line for line in ("bbbb", "cccc") if line not in train]
    assert caplog.messages == []


@pytest.mark.parametrize("size", [5, 16, 1 << 20])
def test_lines_of_the_validation_part_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(running_text, "read_blocks", lambda path: files.read_blocks(path, size=size))
    lines = [f"line {number}" for number in range(20)]  # 150 characters with their ends
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.txt").write_text("other\n")
    config = PlainTextConfig(folder=str(tmp_path), train=("a.txt", "b.txt"), validation_fraction=0.5, documents="line")
    cut = 11  # character 78 of 156 is in the line number 11, counted from 0
    train, validation = open_source("text", config, "train"), open_source("text", config, "validation")
    assert train is not None
    assert validation is not None
    assert [row for _, row in train.rows()] == [(line,) for line in lines[:cut]]
    rows = list(validation.rows())
    assert [row for _, row in rows] == [(line,) for line in [*lines[cut:], "other"]]
    assert validation.where(rows[0][0]) == f"'{tmp_path / 'a.txt'}', line 12"
    assert validation.where(rows[-1][0]) == f"'{tmp_path / 'b.txt'}', line 1"
    assert (train.num_rows(), validation.num_rows()) == (cut, 10)
    for skip in (3, cut, cut + 4):
        assert list(train.shards[0].read(skip=skip)) == [(line,) for line in lines[skip:cut]]
    first = validation.shards[0]
    assert list(first.read(skip=7)) == [(line,) for line in lines[cut + 7 :]]


@pytest.mark.parametrize("documents", ["running", "line"])
def test_a_start_with_everything_in_the_cache_reads_every_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: str
) -> None:
    """As a run does: validation texts, then the training split, whose identity finds its texts in the cache."""
    opened: list[str] = []

    def counted(path: Path, *arguments: int, **settings: int) -> Iterator[tuple[int, bytes]]:
        opened.append(path.name)
        return read_blocks(path, *arguments, **settings)

    read_blocks = files.read_blocks
    monkeypatch.setattr(files, "read_blocks", counted)
    monkeypatch.setattr(running_text, "read_blocks", counted)
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * 100)
    config = PlainTextConfig(folder=str(tmp_path), train="*.txt", validation_fraction=0.5, documents=documents)
    assert "".join(read_documents(config, "validation") or []).replace("\n", "") == "b" * 50 + "c" * 100
    train = open_source("text", config, "train")
    assert train is not None
    assert train.identity()
    assert opened == ["a.txt", "b.txt", "c.txt"]
    opened.clear()
    for _ in range(2):  # passes over a stream
        assert "".join(str(row) for _, (row,) in train.rows()).replace("\n", "") == "a" * 100 + "b" * 50
    assert opened == [*("a.txt", "b.txt", "c.txt"), *("a.txt", "b.txt"), *("a.txt", "b.txt")]  # the cut, the passes


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", " \n"])
def test_no_line_is_torn_whatever_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Pieces for a tokenizer end within lines where only such lines follow; documents do not."""
    monkeypatch.setattr(running_text, "read_blocks", lambda path: files.read_blocks(path, size=64))
    monkeypatch.setattr(running_text, "read_pieces", lambda path: files.read_pieces(path, size=64))
    lines = [f"<{number} and some words that follow {number}>" for number in range(200)]
    (tmp_path / "a.txt").write_bytes("".join(f"{line}{end}" for line in lines).encode())
    for fraction in (0.3, 0.6, 0.601, 0.9):
        config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=fraction, documents="line")
        train = open_source("text", config, "train")
        assert train is not None
        first = [text.strip() for _, (text,) in train.rows() if text.strip()]
        rest = [text.strip() for text in read_documents(config, "validation") or [] if text.strip()]
        assert first + rest == lines


def test_nothing_is_read_behind_the_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def pieces(path: Path) -> Iterator[str]:
        for piece in files.read_pieces(path, size=16):
            taken.append(piece)
            yield piece

    lines = [f"line {number:03}\n" for number in range(100)]
    (tmp_path / "a.txt").write_text("".join(lines))
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=0.899)
    source = open_source("text", config, "train")
    assert source is not None
    assert joined([row for _, row in source.rows() if not isinstance(row, ValueError)]) == "".join(lines)[:90]
    monkeypatch.setattr(running_text, "read_pieces", pieces)
    assert joined([row for _, row in source.rows() if not isinstance(row, ValueError)]) == "".join(lines)[:90]
    assert 90 <= len("".join(taken)) < 200


def test_a_part_changes_with_all_that_it_depends_on(tmp_path: Path) -> None:
    def identity(split: Literal["train", "validation"], fraction: float = 0.5, documents: str = "line") -> str:
        config = PlainTextConfig(folder=str(tmp_path), train="*.txt", validation_fraction=fraction, documents=documents)
        source = open_source("text", config, split)
        assert source is not None
        return source.identity()

    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * 100)
    before = [identity("train"), identity("validation")]
    others = [identity("train", 0.25), identity("validation", 0.25), identity("train", documents="running")]
    assert [identity("train"), identity("validation")] == before
    (tmp_path / "d.txt").write_text("d\n" * 200)  # moves the cut
    assert len({*before, *others, identity("train"), identity("validation")}) == 7


def test_a_fraction_that_rounds_to_nothing_is_refused(tmp_path: Path, training_rows: TrainingRows) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    for documents in ("running", "line"):
        config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=1e-20, documents=documents)
        for whole_files in (False, True):
            with pytest.raises(
                ValueError, match=r"A split to be scored must have examples, but that of plain_text has"
            ):
                read_documents(config, "validation", whole_files=whole_files)
        assert joined(training_rows(config)[0]).replace("\n", "") == "onetwo"


def test_running_text_of_a_file_is_one_text_if_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "transformer.data.corpora.running_text.read_pieces", lambda path: files.read_pieces(path, size=16)
    )
    texts = ["".join(f"line {number}\n" for number in range(9)), "other\n", "\n"]
    for name, text in zip("abc", texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation="*.txt")
    pieces = read_documents(config, "validation")
    assert pieces is not None
    assert len(pieces) > 3
    assert "".join(pieces) == "".join(texts)
    assert read_documents(config, "validation", whole_files=True) == texts
    of_lines = config.model_copy(update={"documents": "line"})
    assert read_documents(of_lines, "validation", whole_files=True) == [*texts[0].split("\n")[:-1], "other"]
    cut = config.model_copy(update={"train": "*.txt", "validation": None, "validation_fraction": 0.5})
    whole = "".join(texts)
    assert read_documents(cut, "validation", whole_files=True) == [whole[35:63], *texts[1:]]


def test_validation_fraction_that_leaves_nothing_is_refused(tmp_path: Path, training_rows: TrainingRows) -> None:
    (tmp_path / "a.txt").write_text("one line only")
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=0.5, documents="line")
    with pytest.raises(ValueError, match=r"The training split of .* must have examples, but is empty\."):
        training_rows(config)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=r"The training split of .* must have examples, but is empty\."):
        training_rows(config.model_copy(update={"documents": "running"}))


def test_plain_text_files(tmp_path: Path, training_rows: TrainingRows) -> None:
    (tmp_path / "a.txt").write_text("x\n y\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"z\n"))
    files = {"train": "a.txt", "validation": "b.txt.gz", "test": "a.txt"}
    for documents, x_and_y, z in (
        ("running", ["x\n y\n"], ["z\n"]),
        ("file", ["x\n y\n"], ["z\n"]),
        ("line", ["x", " y"], ["z"]),
    ):
        config = PlainTextConfig(folder=str(tmp_path), documents=documents, **files)
        assert training_rows(config)[0] == [(text,) for text in x_and_y]
        assert [read_documents(config, split) for split in ("validation", "test")] == [z, x_and_y]


def test_each_file_is_a_document_or_all_are_one_text(tmp_path: Path, training_rows: TrainingRows) -> None:
    for name, text in (("a", "one\n\n"), ("b", "\n \n"), ("c", "two")):
        (tmp_path / f"{name}.txt").write_text(text)
    config = PlainTextConfig(folder=str(tmp_path), train="*.txt", validation="a.txt", documents="file")
    rows, report = training_rows(config)
    assert rows == [("one\n\n",), ("two",)]
    assert (report.read, report.dropped) == (3, {"blank": 1})
    assert report.examples["blank"][0].where == f"'{tmp_path / 'b.txt'}', document 1"
    running = config.model_copy(update={"documents": "running"})
    rows, report = training_rows(running)
    assert joined(rows) == "one\n\n\n \ntwo"  # nothing is left out of a running text
    assert report.dropped == {}
    assert config.marks_documents
    assert not running.marks_documents


def test_a_long_running_text_comes_in_pieces_and_is_whole(tmp_path: Path, training_rows: TrainingRows) -> None:
    text = "".join(f"line {number} of a text\n" for number in range(120_000))
    (tmp_path / "a.txt").write_text(text)
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=0.01)
    source = open_source("text", config, "train")
    assert source is not None
    [shard] = source.shards
    pieces = [row for row in shard.read() if not isinstance(row, ValueError)]
    assert len(pieces) > 2
    assert list(shard.read(skip=2)) == pieces[2:]
    assert joined(pieces) == joined(training_rows(config)[0]) == text[: int(len(text) * 0.99)]


def test_blank_documents_to_be_scored_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("x\n\n \ny\n")
    files = {"folder": str(tmp_path), "train": "a.txt", "validation": "a.txt"}
    with caplog.at_level(logging.WARNING):
        assert read_documents(PlainTextConfig(documents="line", **files), "validation") == ["x", "y"]
        assert caplog.messages == ["plain_text: left out 2 blank of 4 documents to be scored."]
        caplog.clear()
        assert read_documents(PlainTextConfig(**files), "validation") == ["x\n\n \ny\n"]
    assert caplog.messages == []
