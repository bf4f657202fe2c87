"""Line-exact reading: what is a line, what is text, and what a damaged file says."""

import gzip
from pathlib import Path

import pytest

from transformer.data.readers import read_jsonl, read_lines, read_text, read_tsv


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\n", [""]),
        (b"a\n\n", ["a", ""]),
        (b" a \t\n", [" a \t"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert read_lines(written(tmp_path / "file.txt", content)) == lines
    assert read_lines(written(tmp_path / "file.txt.gz", gzip.compress(content))) == lines


def test_read_text_keeps_every_character_but_the_byte_order_mark(tmp_path: Path) -> None:
    assert read_text(written(tmp_path / "a", b"\xef\xbb\xbf x\r\ny\x0b\xc2\x85\n\n")) == " x\r\ny\x0b\x85\n\n"


def test_gzip_of_several_members_is_read_whole(tmp_path: Path) -> None:
    assert read_lines(written(tmp_path / "a.gz", gzip.compress(b"a\n") + gzip.compress(b"b\n"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", r"The file '.*empty\.txt' is empty\."),
        ("mark.txt", b"\xef\xbb\xbf", r"The file '.*mark\.txt' is empty\."),
        ("empty.gz", gzip.compress(b""), r"The file '.*empty\.gz' is empty\."),
        (
            "cut.gz",
            gzip.compress(b"a line\n" * 100)[:-9],
            r"The file '.*cut\.gz' must be gzip by its name, but is damaged",
        ),
        (
            "plain.gz",
            b"a line\n",
            r"The file '.*plain\.gz' must be gzip by its name, but is damaged or no gzip",
        ),
        (
            "zip.gz",
            b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff\xff",
            r"The file '.*zip\.gz' must be gzip by its name",
        ),
        ("bad.txt", b"a\nb\nc\xc3(\n", r"The file '.*bad\.txt' must be UTF-8, but line 3 is not"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_lines(written(tmp_path / name, content))


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"The file '.*nowhere' does not exist\."):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"must be a file, but is a folder\."):
        read_lines(tmp_path)


def test_tsv_by_number_has_no_header_and_no_quoting(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b'id\t"a\tb"\tmore\n1\tx\\t\t y \n')
    assert list(read_tsv(path, (2, 1))) == [('b"', '"a'), (" y ", "x\\t")]


def test_tsv_by_name_reads_the_header(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b"de\tid\ten\nhallo\t1\thello\r\n")
    assert list(read_tsv(path, ("en", "de"))) == [("hello", "hallo")]


def test_tsv_faults_name_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b"de\ten\nhallo\n")
    with pytest.raises(ValueError, match=r"a\.tsv', line 2: must have 2 columns or more, but has 1\."):
        list(read_tsv(path, (0, 1)))
    with pytest.raises(ValueError, match=r"a\.tsv', line 2: must have 2 columns or more, but has 1\."):
        list(read_tsv(path, ("de", "en")))
    with pytest.raises(ValueError, match=r"a\.tsv' must have one column 'fr', but its header has 'de', 'en'\."):
        list(read_tsv(path, ("de", "fr")))
    with pytest.raises(ValueError, match=r"must have one column 'a', but its header has 'a', 'b', 'a'\."):
        list(read_tsv(written(tmp_path / "b.tsv", b"a\tb\ta\n1\t2\t3\n"), ("a", "b")))


def test_jsonl_looks_into_nested_objects(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.jsonl", b'{"t": {"de": "\\u00fc\\u2028x", "en": "u"}}\n{"t": {"de": null, "en": ""}}\n'
    )
    assert list(read_jsonl(path, ("t.de", "t.en"))) == [("ü\u2028x", "u"), (None, "")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", r"line 2: must be a JSON object, but is not JSON"),
        (b"", r"line 2: must be a JSON object, but is not JSON"),
        (b"[1]", r"line 2: must hold an object to look up 'a' of 'a\.b' in, but is a list\."),
        (b'{"a": "x"}', r"line 2: must hold an object to look up 'b' of 'a\.b' in, but is text\."),
        (b'{"a": {"c": "x", "d": "y"}}', r"line 2: no field 'a\.b'; there are 'c', 'd'\."),
        (b'{"a": {"b": true}}', r"line 2: the field 'a\.b' must be text, but is a truth value\."),
        (b'{"a": {"b": 1.5}}', r"line 2: the field 'a\.b' must be text, but is a number\."),
        (b'{"a": {"b": "x\\ud800"}}', r"line 2: the field 'a\.b' holds half of a surrogate pair"),
    ],
)
def test_jsonl_faults_name_file_and_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = written(tmp_path / "a.jsonl", b'{"a": {"b": "x"}, "c": "y"}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"a\.jsonl', " + message):
        list(read_jsonl(path, ("a.b", "c")))
