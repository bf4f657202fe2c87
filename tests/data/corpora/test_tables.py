"""Comma-separated values and Parquet: which cells, and what damage says."""

import io
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transformer.data.corpora.rows import Row
from transformer.data.corpora.tables import count_parquet_rows, read_csv, read_parquet

ROWS = [(f'source "{k}", ä', f"Ziel {k}\n漢字") for k in range(40)]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def texts(rows: Iterator[Row | ValueError]) -> list[Row | str]:
    """Rows, and the sentence of each that cannot be read."""
    return [str(row) if isinstance(row, ValueError) else row for row in rows]


def test_csv_with_quotes_and_line_ends_in_cells(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b'\xef\xbb\xbfid,"a,b","say ""x""\r\nmore"\r\n2, y ,5" disk\r\n,,"\n"\n')
    assert list(read_csv(path, (2, 1))) == [('say "x"\r\nmore', "a,b"), ('5" disk', " y "), ("\n", "")]
    assert list(read_csv(path, (0,))) == [("id",), ("2",), ("",)]
    assert list(read_csv(path, (2, 1), skip=1)) == [('5" disk', " y "), ("\n", "")]
    assert list(read_csv(path, (0,), skip=3)) == []


def test_csv_by_name_and_with_another_delimiter(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b'de;"en, US"\nhallo;hello\n"w;elt";world')
    assert list(read_csv(path, ("en, US", "de"), ";")) == [("hello", "hallo"), ("world", "w;elt")]
    assert list(read_csv(path, ("en, US", "de"), ";", skip=1)) == [("world", "w;elt")]
    with pytest.raises(ValueError, match=r"a\.csv' must have one column 'en', but its header has 'de', 'en, US'\.$"):
        list(read_csv(path, ("en", "de"), ";"))
    with pytest.raises(ValueError, match=r"b\.csv' must be UTF-8, but line 1 is not"):
        list(read_csv(written(tmp_path / "b.csv", b"a,\xff\n1,2\n"), ("a", "b")))


def test_bad_records_keep_their_place_and_tell_their_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b'1,a\n"2\n\xff",b\n3\n\n"5\n5","e"\n6,f,\xe4\n"7",g\n')
    no_text = f"The file {str(path)!r} must be UTF-8, but line {{}} is not: "
    short = f"{str(path)!r}, line {{}}: must have 2 columns or more, but has {{}}."
    expected = [
        ("1", "a"),
        no_text.format(3) + "invalid start byte.",
        short.format(4, 1),
        short.format(5, 0),
        ("5\n5", "e"),
        no_text.format(8) + "invalid continuation byte.",
        ("7", "g"),
    ]
    for skip in range(8):
        assert texts(read_csv(path, (0, 1), skip=skip)) == expected[skip:]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b'a,b\n"open,x\nc,d\n', 2, "unexpected end of data"),
        (b'a,b\n"a\n\n"b,x\n', 2, "',' expected after '\"'"),
        (b'a,b\n"a" ,x\n', 2, "',' expected after '\"'"),
        (b"a,b\nx,y\rz,w\n", 2, "new-line character seen in unquoted field"),
        (b"a,b\rc,d\re,f\r", 1, "new-line character seen in unquoted field"),
        (b'a,b\nc,"' + b"x" * (1 << 24) + b'y"\nd,e', 2, "field larger than field limit (16777216)"),
    ],
)
def test_quotes_that_do_not_match_are_refused(tmp_path: Path, content: bytes, line: int, message: str) -> None:
    path = written(tmp_path / "a.csv", content)
    fault = f"{str(path)!r}, line {line}: the record that starts there must be comma-separated values with matching "
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}quotes, but is not: {re.escape(message)}\\.$"):
        list(read_csv(path, (0, 1)))


def test_long_cells_are_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b'"' + b"x\n" * 500_000 + b'",b\nc,d\n')
    assert list(read_csv(path, (0, 1))) == [("x\n" * 500_000, "b"), ("c", "d")]


def parquet(path: Path, columns: dict[str, object], **settings: object) -> Path:
    pq.write_table(pa.table(columns), path, **settings)
    return path


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_parquet_of_every_kind_of_text(tmp_path: Path, kind: pa.DataType) -> None:
    values = ["ä", None, "", "b" * 1000, "ä"]
    array = pa.array(values, pa.string()).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(values, kind)
    path = parquet(tmp_path / "a.parquet", {"n": list(range(5)), "t": array})
    assert list(read_parquet(path, ("t",))) == [(value,) for value in values]
    assert count_parquet_rows(path) == 5


def test_parquet_looks_into_structs(tmp_path: Path) -> None:
    rows = [{"t": {"de": "ja", "en": "yes"}}, {"t": {"de": None, "en": "no"}}, {"t": None}]
    path = parquet(tmp_path / "a.parquet", {"x": rows, "y": ["a", "b", "c"]})
    assert list(read_parquet(path, ("x.t.en", "y"))) == [("yes", "a"), ("no", "b"), (None, "c")]
    assert list(read_parquet(path, ("x.t.en", "x.t.de"))) == [("yes", "ja"), ("no", None), (None, None)]


def test_parquet_skips_rows_within_and_across_groups_and_batches(tmp_path: Path) -> None:
    rows = [(str(k), str(-k)) for k in range(25_000)]
    source, target = zip(*rows, strict=True)
    path = parquet(tmp_path / "a.parquet", {"t": target, "s": source}, row_group_size=12_000)
    for skip in (0, 1, 9_999, 10_000, 11_999, 12_000, 12_001, 24_999, 25_000, 25_001):
        assert list(read_parquet(path, ("s", "t"), skip=skip)) == rows[skip:]


def test_parquet_reads_only_the_columns_it_needs(tmp_path: Path) -> None:
    other = [random.Random(0).randbytes(1000).hex() for _ in range(100)]
    path = parquet(tmp_path / "a.parquet", {"t": ["x"] * 100, "other": other}, write_page_checksum=True)
    content = path.read_bytes()
    place = content.index(other[50].encode()[:100]) if other[50].encode()[:100] in content else len(content) // 2
    path.write_bytes(content[:place] + b"?" * 100 + content[place + 100 :])
    assert list(read_parquet(path, ("t",))) == [("x",)] * 100
    with pytest.raises(ValueError, match=r"cannot be read as Parquet: "):
        list(read_parquet(path, ("other",)))


def test_a_parquet_cell_that_is_not_utf8_spoils_its_row_only(tmp_path: Path) -> None:
    cells = [b"a", b"\xff", None, b"d"] + [b"x"] * 11_000 + [b"\xe4"]
    bad = pa.array(cells, pa.binary()).view(pa.string())
    path = parquet(tmp_path / "a.parquet", {"s": bad, "t": [str(k) for k in range(11_005)]})
    found = texts(read_parquet(path, ("s", "t")))
    fault = f"{str(path)!r}, row {{}}: the field 's' must be UTF-8, but is not: "
    assert found[:4] == [("a", "0"), fault.format(2) + "invalid start byte.", (None, "2"), ("d", "3")]
    assert found[4:-1] == [("x", str(k)) for k in range(4, 11_004)]
    assert found[-1] == fault.format(11_005) + "unexpected end of data."
    assert texts(read_parquet(path, ("s", "t"), skip=1)) == found[1:]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("s.b", r"a\.parquet' has no field 's\.b'; there are 's\.a', 's\.l', 'n', 'b', 't'\.$"),
        ("x", r"a\.parquet' has no field 'x'; there are 's\.a', 's\.l', 'n', 'b', 't'\.$"),
        ("t.x", r"a\.parquet' has no field 't\.x'; there are"),
        ("n", r"^The field 'n' of '.*a\.parquet' must be text, but is int64\.$"),
        ("b", r"^The field 'b' of '.*a\.parquet' must be text, but is binary\.$"),
        ("s", r"^The field 's' of '.*a\.parquet' must be text, but is struct<a: string, l: list<\w+: string>>\.$"),
        ("s.l", r"^The field 's\.l' of '.*a\.parquet' must be text, but is list<\w+: string>\.$"),
    ],
)
def test_parquet_without_the_texts_is_refused(tmp_path: Path, field: str, message: str) -> None:
    columns = {"s": [{"a": "x", "l": ["y"]}], "n": [1], "b": [b"x"], "t": ["x"]}
    path = parquet(tmp_path / "a.parquet", columns)
    with pytest.raises(ValueError, match=message):
        list(read_parquet(path, ("t", field)))


def test_parquet_without_rows_has_none(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"t": pa.array([], pa.string())})
    assert list(read_parquet(path, ("t",))) == []
    assert count_parquet_rows(path) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"^The file '.*a\.parquet' is empty\.$"),
        (b"no parquet at all", r"^The file '.*a\.parquet' cannot be read as Parquet: .*magic bytes not found"),
        (b"PAR1" + b"\xff" * 100 + b"\x50\0\0\0PAR1", r"^The file '.*a\.parquet' cannot be read as Parquet: [^\n]*\.$"),
    ],
)
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path / "a.parquet", content)
    for read in (count_parquet_rows, lambda path: list(read_parquet(path, ("t",)))):
        with pytest.raises(ValueError, match=message):
            read(path)


def test_missing_parquet_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^The file '.*nowhere' does not exist\.$"):
        list(read_parquet(tmp_path / "nowhere", ("t",)))
    with pytest.raises(ValueError, match=r"must be a file, but is a folder\.$"):
        count_parquet_rows(tmp_path)


def checked(compression: str) -> bytes:
    buffer = io.BytesIO()
    table = pa.table(dict(zip("st", zip(*ROWS, strict=True), strict=True)))
    pq.write_table(table, buffer, compression=compression, write_page_checksum=True)
    return buffer.getvalue()


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_cut_parquet_is_refused(tmp_path: Path, compression: str) -> None:
    whole = checked(compression)
    path = tmp_path / "a.parquet"
    for size in range(1, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"^The file '.*a\.parquet' cannot be read as Parquet: [^\n]*\.$"):
            list(read_parquet(path, ("s", "t")))


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_changed_byte_of_a_parquet_file_with_checksums_never_changes_rows(tmp_path: Path, compression: str) -> None:
    whole = checked(compression)
    path = tmp_path / "a.parquet"
    generator = random.Random(compression)
    num_refused = 0
    for _ in range(100):
        changed = bytearray(whole)
        changed[generator.randrange(len(changed))] ^= generator.randrange(1, 256)
        path.write_bytes(changed)
        try:
            found = list(read_parquet(path, ("s", "t")))
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017 - not every change is refused
            num_refused += 1
        else:
            assert found == ROWS
    assert num_refused > 60
