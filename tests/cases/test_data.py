"""Reported data faults, by the id of their case: the part of reading and loading."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.data.corpora import load_pairs, load_texts
from transformer.data.document_config import PlainTextConfig
from transformer.data.pair_config import ParallelTextConfig
from transformer.data.readers import read_lines

SEPARATORS = ["\u2028", "\u0085", "\u000b", "\u000c", "\u2029", "\u001c"]


def parallel(folder: Path, source: bytes, target: bytes) -> ParallelTextConfig:
    """The same two files as training, validation and test set."""
    (folder / "a.en").write_bytes(source)
    (folder / "a.de").write_bytes(target)
    files = {f"{split}_source": "a.en" for split in ("train", "validation", "test")}
    files |= {f"{split}_target": "a.de" for split in ("train", "validation", "test")}
    return ParallelTextConfig(folder=str(folder), **files)


def test_DATA_01_unicode_line_separators_are_text(tmp_path: Path) -> None:
    source = [f"left{separator}right {k}" for k, separator in enumerate(SEPARATORS)]
    target = [f"line {k}" for k in range(6)]
    config = parallel(tmp_path, ("\n".join(source) + "\n").encode(), ("\n".join(target) + "\n").encode())
    for split in load_pairs(config):
        assert split is not None
        assert list(split["source"]) == source
        assert list(split["target"]) == target
    lines = load_texts(PlainTextConfig(folder=str(tmp_path), train="a.en", validation="a.en", documents="line"))
    assert list(lines.train["text"]) == source


def test_DATA_03_blank_training_pairs_are_dropped_with_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = ["", "Hallo", " ", "Welt", "\t", "gut", "\u00a0"]
    target = ["a", "hello", "b", " ", "", "good", "c"]
    config = parallel(tmp_path, "\n".join(source).encode(), "\n".join(target).encode())
    with caplog.at_level(logging.WARNING):
        splits = load_pairs(config)
    assert list(zip(splits.train["source"], splits.train["target"], strict=True)) == [
        ("Hallo", "hello"),
        ("gut", "good"),
    ]
    assert caplog.messages == ["Dropped 5 of 7 training pairs with a blank or missing side."]
    # Validation and test keep every line: output k belongs to line k.
    for split in (splits.validation, splits.test):
        assert split is not None
        assert list(zip(split["source"], split["target"], strict=True)) == list(zip(source, target, strict=True))


def test_DATA_05_invalid_utf8_names_file_and_line(tmp_path: Path) -> None:
    config = parallel(tmp_path, b"gut\n\xff\xfe kaputt\nende\n", b"a\nb\nc\n")
    with pytest.raises(ValueError, match=r"The file '.*a\.en' must be UTF-8, but line 2 is not"):
        load_pairs(config)


def test_DATA_05_valid_utf8_is_read_the_same_under_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("größer\nмир\n".encode())
    code = (
        "from pathlib import Path; from transformer.data.readers import read_lines;"
        f"print(ascii(read_lines(Path({str(path)!r}))))"
    )
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    assert out.stdout.strip() == r"['gr\xf6\xdfer', '\u043c\u0438\u0440']"
    assert read_lines(path) == ["größer", "мир"]


def test_DATA_09_unequal_line_counts_are_refused_naming_both(tmp_path: Path) -> None:
    config = parallel(tmp_path, b"one\ntwo\nthree\n", b"eins\nzwei\n")
    with pytest.raises(ValueError, match=r"equally many lines, but '.*a\.en' has 3 and '.*a\.de' has 2\."):
        load_pairs(config)


def test_DATA_09_a_missing_final_newline_is_no_missing_line(tmp_path: Path) -> None:
    splits = load_pairs(parallel(tmp_path, b"one\ntwo\nthree\n", b"eins\nzwei\ndrei"))
    assert list(splits.train["target"]) == ["eins", "zwei", "drei"]
