"""Lines in and out of the tools."""

import gzip
import io
import json
import lzma
import os
import sys
import threading
from pathlib import Path

import pytest

from transformer.cli.lines import (
    check_same_length,
    json_on_one_line,
    on_one_line,
    read_lines,
    read_side_by_side,
    read_windows,
    with_escapes,
    write_in_step,
)


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
@pytest.mark.parametrize("packed", [False, True])
def test_windows_of_files(tmp_path, at_once, packed):
    name = "b.gz" if packed else "b"
    (tmp_path / "a").write_bytes(b"a\nb\n")
    (tmp_path / name).write_bytes(gzip.compress(b"c\nd\ne") if packed else b"c\nd\ne")
    windows = list(read_windows([tmp_path / "a", tmp_path / name], at_once))
    assert windows == [list("abcde")[start : start + at_once] for start in range(0, 5, at_once)]


def test_two_files_side_by_side(tmp_path):
    one, other = tmp_path / "one.gz", tmp_path / "other"
    one.write_bytes(gzip.compress(b"a\n\nc"))
    other.write_bytes(b"x\ny\n\n")
    assert list(read_side_by_side(one, other)) == [("a", "x"), ("", "y"), ("c", "")]
    other.write_bytes(b"x\ny\n")
    for first, second in ((one, other), (other, one)):
        pairs = read_side_by_side(first, second)
        assert len([next(pairs), next(pairs)]) == 2
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            next(pairs)
        assert str(refused.value) == (
            f"both files must have the same number of lines, but {str(other)!r} has 2 and {str(one)!r} has more."
        )
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            check_same_length(first, second)
        assert str(refused.value) == (
            f"both files must have the same number of lines, but {str(first)!r} has {3 if first == one else 2} and "
            f"{str(second)!r} has {3 if second == one else 2}."
        )
    check_same_length(one, one)
    os.mkfifo(tmp_path / "pipe")
    check_same_length(one, tmp_path / "pipe")  # which would wait for somebody to write


@pytest.fixture
def pipe(monkeypatch):
    """Standard input as a pipe; what is written to the file comes there."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as stream, open(writer, "wb", buffering=0) as file:
        monkeypatch.setattr(sys, "stdin", stream)
        yield file


def test_windows_of_a_pipe_do_not_wait_for_more(pipe):
    """Someone who writes a line and waits for its answer gets it."""
    windows = read_windows([], 3)
    pipe.write(b"a\nb\nhalf")
    assert next(windows) == ["a", "b"]
    pipe.write(b" a line\n")
    assert next(windows) == ["half a line"]
    pipe.write(b"1\n2\n3\n4\n")
    assert [next(windows), next(windows)] == [["1", "2", "3"], ["4"]]
    pipe.write(b"last")
    pipe.close()
    assert list(windows) == [["last"]]


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_a_pipe_gives_all_lines_whatever_its_blocks(pipe, at_once):
    lines = [str(number) * (number % 50) for number in range(20_000)] + ["x" * 300_000, ""]
    content = "".join(f"{line}\n" for line in lines).encode()
    writing = threading.Thread(target=lambda: (pipe.write(content), pipe.close()))
    writing.start()
    windows = list(read_windows([], at_once))
    writing.join()
    assert [line for window in windows for line in window] == lines
    assert max(map(len, windows)) <= at_once


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n", b"a\r\n\xef\xbb\xbfb", b"\xef\xbb\xbfa\n\n\x00\n"])
def test_a_pipe_gives_what_a_file_gives(pipe, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    pipe.write(content)
    pipe.close()
    assert [line for window in read_windows([], 10) for line in window] == list(read_lines([tmp_path / "file"]))


def test_a_pipe_counts_its_lines(pipe):
    pipe.write(b"a\nb\n\xef\xbb\xbfc\n\xff\n")
    pipe.close()
    windows = read_windows([], 3)
    assert next(windows) == ["a", "b", "\ufeffc"]  # a byte order mark is one in the first line only
    with pytest.raises(ValueError, match=r"^standard input, line 4: must be UTF-8"):
        next(windows)


def test_several_outputs_are_written_and_flushed_at_once():
    one, two = io.BytesIO(), io.BytesIO()
    buffered = io.BufferedWriter(one)
    write_in_step([(buffered, ["ä", "", "b\r"]), (two, ["0-0", "", ""])])
    assert (one.getvalue(), two.getvalue()) == ("ä\n\nb\r\n".encode(), b"0-0\n\n\n")


# Everything that str.splitlines, universal newlines or an editor takes for the end of a line.
BREAKS = [chr(code) for code in range(0x110000) if len(f"a{chr(code)}b".splitlines()) == 2]


def test_no_program_sees_more_lines_than_there_are():
    assert len(BREAKS) == 10
    text = "".join(f"{number}{each}" for number, each in enumerate(BREAKS)) + "\0\x1b[31m\t end"
    assert on_one_line(text) == "0 1 2 3 4 5 6 7 8 9 \0\x1b[31m\t end"
    assert with_escapes("a\nb\r\u2028\x85\tc\\") == "a\\nb\\r\\u2028\\x85\tc\\"
    assert len(with_escapes(text).splitlines()) == 1
    line = json_on_one_line(json.dumps({"ä": text}, ensure_ascii=False))
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"ä": text}
    assert "ä" in line
