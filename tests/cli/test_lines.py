"""Lines in and out of the tools."""

import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest

from transformer.cli.lines import map_lines, read_lines


class _Stream:
    def __init__(self, content=b""):
        self.buffer = io.BytesIO(content)


def _read(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", _Stream(content))
    return list(read_lines([]))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r\r\n", ["a\rb\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("ä\u2028\u0085\x0b\x0c\u2029\x1cß\n\U0001f600".encode(), ["ä\u2028\u0085\x0b\x0c\u2029\x1cß", "\U0001f600"]),
        (b" a\t\n", [" a\t"]),
        (b"\x00\n", ["\x00"]),
    ],
)
def test_only_line_feeds_end_lines(monkeypatch, tmp_path, content, lines):
    assert _read(monkeypatch, content) == lines
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(content))
    assert list(read_lines([tmp_path / "plain"])) == lines
    assert list(read_lines([tmp_path / "packed.gz", tmp_path / "plain"])) == lines * 2


def test_lines_come_before_the_input_ends(monkeypatch):
    """At a terminal each line is answered before the next is typed."""

    class Endless:
        def __iter__(self):
            yield b"first\n"
            raise AssertionError("read too far")

    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": Endless()}))
    assert next(read_lines([])) == "first"


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"\xff\n", 1, "invalid start byte"),
        (b"a\nb\n\xc3\n", 3, "unexpected end of data"),
        (b"a\n\xed\xa0\x80\n", 2, "invalid continuation byte"),
        (b"a\n\xc0\xaf", 2, "invalid start byte"),
    ],
)
def test_invalid_utf8_names_file_and_line(monkeypatch, tmp_path, content, line, reason):
    with pytest.raises(ValueError, match=f"^standard input, line {line}: must be UTF-8, but is not: {reason}.$"):
        _read(monkeypatch, content)
    (tmp_path / "good").write_bytes(b"a\n" * 10)
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match=f"bad, line {line}: must be UTF-8"):
        list(read_lines([tmp_path / "good", tmp_path / "bad"]))


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "no.gz").write_bytes(b"plain")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(bytes(range(128)) * 100)[:-20])
    damaged = bytearray(gzip.compress(b"some text\n" * 50, mtime=0))
    damaged[12:30] = b"\xff" * 18
    (tmp_path / "damaged.gz").write_bytes(damaged)
    (tmp_path / "no.zst").write_bytes(b"plain")
    for name in ("no.gz", "cut.gz", "damaged.gz", "no.zst"):
        with pytest.raises(ValueError, match=rf"^The file '.*{name}' must be \w+ by its name, but is damaged or no"):
            list(read_lines([tmp_path / name]))
    with pytest.raises(ValueError, match=r"^The file '.*missing' does not exist\.$"):
        list(read_lines([tmp_path / "missing"]))
    with pytest.raises(ValueError, match=r"must be a file, but is a folder\.$"):
        list(read_lines([Path(tmp_path)]))


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"a\n"))
    assert list(read_lines([tmp_path / "empty", tmp_path / "empty.gz", tmp_path / "a.xz"])) == ["a"]


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 100])
def test_answers_are_written_in_order_with_the_numbers_of_their_lines(monkeypatch, at_once):
    output = _Stream()
    monkeypatch.setattr(sys, "stdout", output)
    calls = []

    def run(lines, first):
        calls.append((first, len(lines)))
        return [f"{first + place}: {line}ü" for place, line in enumerate(lines)]

    map_lines(iter("abcde"), run, at_once=at_once)
    assert output.buffer.getvalue().decode() == "1: aü\n2: bü\n3: cü\n4: dü\n5: eü\n"
    assert calls == [(first, min(at_once, 6 - first)) for first in range(1, 6, at_once)]


def test_no_line_no_answer(monkeypatch):
    monkeypatch.setattr(sys, "stdout", _Stream())
    map_lines(iter([]), lambda lines, first: pytest.fail("nothing to answer"), at_once=3)
    assert sys.stdout.buffer.getvalue() == b""


def test_what_is_finished_is_out_before_more_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdout", _Stream())
    seen = []

    def lines():
        for line in "abcd":
            seen.append(sys.stdout.buffer.getvalue())
            yield line

    map_lines(lines(), lambda lines, first: lines, at_once=2)
    assert seen == [b"", b"", b"a\nb\n", b"a\nb\n"]


def test_an_error_keeps_the_answers_before_it(monkeypatch):
    output = _Stream()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stdin", _Stream(b"a\nb\nc\n\xff\n"))
    with pytest.raises(ValueError, match="line 4"):
        map_lines(read_lines([]), lambda lines, first: lines, at_once=2)
    assert output.buffer.getvalue() == b"a\nb\n"
