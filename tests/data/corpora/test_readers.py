"""Rows from files of lines: which texts, in which order, and what a bad line says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer.data.corpora.readers import listing, read_jsonl, read_parallel, read_tsv
from transformer.data.corpora.rows import Row


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def texts(rows: Iterator[Row | ValueError]) -> list[Row | str]:
    """Rows, and the sentence of each that cannot be read."""
    return [str(row) if isinstance(row, ValueError) else row for row in rows]


def test_parallel_lines(tmp_path: Path) -> None:
    source, target = written(tmp_path / "a.en", b"a\n\nc"), written(tmp_path / "a.de", b"A\r\nB\r\n\n")
    assert list(read_parallel([source])) == [("a",), ("",), ("c",)]
    assert list(read_parallel([source, target])) == [("a", "A"), ("", "B"), ("c", "")]
    assert list(read_parallel([source, target], skip=2)) == [("c", "")]
    assert list(read_parallel([source, target], skip=3)) == []


def test_a_bad_line_on_either_side_spoils_the_row(tmp_path: Path) -> None:
    source = written(tmp_path / "a.en", b"a\n\xff\nc\n\xff\n")
    target = written(tmp_path / "a.de", b"A\nB\n\xff\n\xff\n")
    fault = "The file {!r} must be UTF-8, but line {} is not: invalid start byte."
    first, *others = texts(read_parallel([source, target]))
    assert first == ("a", "A")
    assert others == [fault.format(str(source), 2), fault.format(str(target), 3), fault.format(str(source), 4)]
    assert texts(read_parallel([source]))[1:3] == [others[0], ("c",)]


@pytest.mark.parametrize("skip", [0, 1])
def test_unequal_line_counts_name_both_files(tmp_path: Path, skip: int) -> None:
    short, long = written(tmp_path / "short", b"1\n2"), written(tmp_path / "long", b"1\n2\n3\n4\n")
    with pytest.raises(ValueError, match=r"equally many lines, but '.*short' has 2 and '.*long' has 4\.$"):
        list(read_parallel([short, long], skip))
    with pytest.raises(ValueError, match=r"equally many lines, but '.*long' has 4 and '.*short' has 2\.$"):
        list(read_parallel([long, short], skip))


def test_tsv_by_number_has_no_header_and_no_quoting(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b'id\t"a\tb"\tmore\n1\tx\\t\t y \n')
    assert list(read_tsv(path, (2, 1))) == [('b"', '"a'), (" y ", "x\\t")]
    assert list(read_tsv(path, (0,), skip=1)) == [("1",)]


def test_tsv_by_name_reads_the_header(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b"\xef\xbb\xbfde\tid\ten\nhallo\t1\thello\r\nwelt\t2\tworld\r\n")
    assert list(read_tsv(path, ("en", "de"))) == [("hello", "hallo"), ("world", "welt")]
    assert list(read_tsv(path, ("en", "de"), skip=1)) == [("world", "welt")]
    assert list(read_tsv(path, ("de",))) == [("hallo",), ("welt",)]
    assert list(read_tsv(written(tmp_path / "b.tsv", b"de\ten\n"), ("en", "de"))) == []


def test_tsv_faults_name_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b"de\ten\nhallo\n\xff\tx\nhallo\thello\n")
    short = f"{str(path)!r}, line 2: must have 2 columns or more, but has 1."
    no_text = f"The file {str(path)!r} must be UTF-8, but line 3 is not: invalid start byte."
    assert texts(read_tsv(path, (0, 1))) == [("de", "en"), short, no_text, ("hallo", "hello")]
    assert texts(read_tsv(path, ("de", "en"))) == [short, no_text, ("hallo", "hello")]
    assert texts(read_tsv(path, ("de", "en"), skip=1)) == [no_text, ("hallo", "hello")]
    with pytest.raises(ValueError, match=r"a\.tsv' must have one column 'fr', but its header has 'de', 'en'\."):
        list(read_tsv(path, ("de", "fr")))
    with pytest.raises(ValueError, match=r"must have one column 'a', but its header has 'a', 'b', 'a'\."):
        list(read_tsv(written(tmp_path / "b.tsv", b"a\tb\ta\n1\t2\t3\n"), ("a", "b")))
    with pytest.raises(ValueError, match=r"c\.tsv' must be UTF-8, but line 1 is not"):
        list(read_tsv(written(tmp_path / "c.tsv", b"a\t\xff\n1\t2\n"), ("a", "b")))


def test_jsonl_looks_into_nested_objects(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.jsonl", b'{"t": {"de": "\\u00fc\\u2028x", "en": "u"}}\r\n{"t": {"de": null, "en": ""}, "n": 1e3}'
    )
    assert list(read_jsonl(path, ("t.de", "t.en"))) == [("ü\u2028x", "u"), (None, "")]
    assert list(read_jsonl(path, ("t.de",), skip=1)) == [(None,)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "must be a JSON object, but is not JSON: Expecting property name enclosed in double quotes at char"),
        (b"", "must be a JSON object, but is not JSON: Expecting value at character 1."),
        (b" ", "must be a JSON object, but is not JSON: Expecting value at character 2."),
        (b"\xef\xbb\xbf{}", "must be a JSON object, but is not JSON: "),
        (b'{"a": {"b": "x"}} {}', "must be a JSON object, but is not JSON: Extra data at character 19."),
        (b'{"a": {"b": "x",}}', "must be a JSON object, but is not JSON: "),
        (b'{"a": {"b": "\t"}}', "must be a JSON object, but is not JSON: Invalid control character at"),
        (b'{"a": {"b": "\0"}}', "must be a JSON object, but is not JSON: Invalid control character at"),
        (b"{'a': {'b': 'x'}}", "must be a JSON object, but is not JSON: "),
        (b"[1]", "must hold an object to look up 'a' of 'a.b' in, but is a list."),
        (b"null", "must hold an object to look up 'a' of 'a.b' in, but is null."),
        (b'{"a": "x"}', "must hold an object to look up 'b' of 'a.b' in, but is text."),
        (b'{"a": {"c": "x", "d": "y"}}', "no field 'a.b'; there are 'c', 'd'."),
        (b'{"a": {}}', "no field 'a.b'; there are none."),
        (b'{"a": {"b": true}}', "the field 'a.b' must be text, but is a truth value."),
        (b'{"a": {"b": 1.5}}', "the field 'a.b' must be text, but is a number."),
        (b'{"a": {"b": ["x"]}}', "the field 'a.b' must be text, but is a list."),
        (b'{"a": {"b": {}}}', "the field 'a.b' must be text, but is an object."),
        (b'{"a": {"b": "x\\ud800"}}', "the field 'a.b' holds half of a surrogate pair, which is not text."),
        (
            b'{"a": {"b": "x", "b": "y"}}',
            "must be a JSON object, but cannot be read: the field 'b' stands there twice.",
        ),
        (b'{"a": {"b": "x"}, "n": NaN}', "must be a JSON object, but cannot be read: NaN is no JSON."),
        (b'{"a": {"b": "x"}, "n": -Infinity}', "must be a JSON object, but cannot be read: -Infinity is no JSON."),
        (
            b'{"a": {"b": "x"}, "n": ' + b"1" * 5000 + b"}",
            "must be a JSON object, but cannot be read: Exceeds the limit (4300 digits) for integer string conversion",
        ),
        (b"[" * 100_000 + b"]" * 100_000, "must be a JSON object, but is nested too deeply."),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "must be a JSON object, but is nested too deeply."),
    ],
)
def test_jsonl_faults_name_file_and_line_and_spoil_their_row_only(tmp_path: Path, line: bytes, message: str) -> None:
    good = b'{"a": {"b": "x"}, "c": "y"}\n'
    path = written(tmp_path / "a.jsonl", good + line + b"\n" + good)
    first, fault, last = texts(read_jsonl(path, ("a.b", "c")))
    assert (first, last) == (("x", "y"), ("x", "y"))
    assert isinstance(fault, str)
    assert fault.startswith(f"{str(path)!r}, line 2: {message}")
    assert fault.endswith(".")
    assert "\n" not in fault
    assert texts(read_jsonl(path, ("a.b", "c"), skip=1)) == [fault, ("x", "y")]


def test_listings_are_short_enough_to_be_read() -> None:
    assert listing([]) == "none"
    assert listing("abc", limit=3) == "'a', 'b', 'c'"
    assert listing("abcde", limit=3) == "'a', 'b', 'c' and 2 more"
