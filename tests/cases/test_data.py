"""Reported data faults, by the id of their case: the part of reading and loading."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from transformer.cli.preparation import summary_line
from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.files import read_lines
from transformer.data.corpora.pair_config import ParallelTextConfig
from transformer.data.preparation.report import CorpusReport, PreparationReport
from transformer.data.text_data import read_documents
from transformer.data.translation_data import read_pairs

TrainingRows = Callable[..., tuple[list[tuple[str, ...]], CorpusReport]]

SEPARATORS = ["\u2028", "\u0085", "\u000b", "\u000c", "\u2029", "\u001c"]


def parallel(folder: Path, source: bytes, target: bytes) -> ParallelTextConfig:
    """The same two files as training, validation and test set."""
    (folder / "a.en").write_bytes(source)
    (folder / "a.de").write_bytes(target)
    files = {f"{split}_source": "a.en" for split in ("train", "validation", "test")}
    files |= {f"{split}_target": "a.de" for split in ("train", "validation", "test")}
    return ParallelTextConfig(folder=str(folder), **files)


def test_DATA_01_unicode_line_separators_are_text(tmp_path: Path, training_rows: TrainingRows) -> None:
    source = [f"left{separator}right {k}" for k, separator in enumerate(SEPARATORS)]
    target = [f"line {k}" for k in range(6)]
    config = parallel(tmp_path, ("\n".join(source) + "\n").encode(), ("\n".join(target) + "\n").encode())
    pairs = list(zip(source, target, strict=True))
    assert training_rows(config)[0] == pairs
    for split in ("validation", "test"):
        found = read_pairs(config, split)
        assert found is not None
        assert found.rows == pairs
    lines = PlainTextConfig(folder=str(tmp_path), train="a.en", validation="a.en", documents="line")
    assert training_rows(lines)[0] == [(text,) for text in source]
    assert read_documents(lines, "validation") == source


def test_DATA_03_blank_training_pairs_are_dropped_with_a_count(tmp_path: Path, training_rows: TrainingRows) -> None:
    source = ["", "Hallo", " ", "Welt", "\t", "gut", "\u00a0"]
    target = ["a", "hello", "b", " ", "", "good", "c"]
    config = parallel(tmp_path, "\n".join(source).encode(), "\n".join(target).encode())
    rows, report = training_rows(config)
    assert rows == [("Hallo", "hello"), ("gut", "good")]
    assert (report.read, report.kept, report.dropped) == (7, 2, {"blank": 5})
    assert report.examples["blank"][1].where == f"'{tmp_path / 'a.en'}', line 3"
    assert report.examples["blank"][1].texts == (" ", "b")
    assert summary_line(PreparationReport(corpora=(report,), sides=())) == "kept 2 of 7 rows; left out: 5 blank"
    # Validation and test keep every line: output k belongs to line k.
    for split in ("validation", "test"):
        found = read_pairs(config, split)
        assert found is not None
        assert found.rows == list(zip(source, target, strict=True))


def test_DATA_05_invalid_utf8_names_file_and_line(tmp_path: Path, training_rows: TrainingRows) -> None:
    config = parallel(tmp_path, b"gut\n\xff\xfe kaputt\nende\n", b"a\nb\nc\n")
    reads = [training_rows, *(partial(read_pairs, split=split) for split in ("validation", "test"))]
    for read in reads:
        with pytest.raises(ValueError, match=r"The file '.*a\.en' must be UTF-8, but line 2 is not"):
            read(config)


def test_DATA_05_lines_that_are_not_utf8_may_be_dropped_with_a_count(
    tmp_path: Path, training_rows: TrainingRows
) -> None:
    config = parallel(tmp_path, b"gut\n\xff\xfe kaputt\nende\n", b"a\nb\nc\n")
    filters = config.filters.model_copy(update={"broken": "drop"})
    config = config.model_copy(update={"filters": filters})
    rows, report = training_rows(config)
    assert rows == [("gut", "a"), ("ende", "c")]
    assert (report.read, report.dropped) == (3, {"broken": 1})
    assert "a.en' must be UTF-8, but line 2 is not" in report.examples["broken"][0].where
    with pytest.raises(ValueError, match=r"The file '.*a\.en' must be UTF-8, but line 2 is not"):
        read_pairs(config, "validation")


def test_DATA_05_valid_utf8_is_read_the_same_under_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("größer\nмир\n".encode())
    code = (
        "from pathlib import Path; from transformer.data.corpora.files import read_lines;"
        f"print(ascii(list(read_lines(Path({str(path)!r})))))"
    )
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    assert out.stdout.strip() == r"['gr\xf6\xdfer', '\u043c\u0438\u0440']"
    assert list(read_lines(path)) == ["größer", "мир"]


def test_DATA_09_unequal_line_counts_are_refused_naming_both(tmp_path: Path, training_rows: TrainingRows) -> None:
    config = parallel(tmp_path, b"one\ntwo\nthree\n", b"eins\nzwei\n")
    reads = [training_rows, *(partial(read_pairs, split=split) for split in ("validation", "test"))]
    for read in reads:
        with pytest.raises(ValueError, match=r"equally many lines, but '.*a\.en' has 3 and '.*a\.de' has 2\."):
            read(config)


def test_DATA_09_a_missing_final_newline_is_no_missing_line(tmp_path: Path, training_rows: TrainingRows) -> None:
    rows, _ = training_rows(parallel(tmp_path, b"one\ntwo\nthree\n", b"eins\nzwei\ndrei"))
    assert rows == [("one", "eins"), ("two", "zwei"), ("three", "drei")]
