"""Hundreds of damaged files. Each is either read with every row in its place, or refused in a sentence that names it.

Row k holds its number on both sides, so a row in a wrong place, or a pair of two different rows, is noticed.
"""

import gzip
import json
import lzma
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from transformer.data.corpora.readers import read_jsonl, read_parallel, read_tsv
from transformer.data.corpora.rows import Row
from transformer.data.corpora.tables import read_csv
from transformer.data.corpora.tmx import read_tmx

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.timeout(10)

NUM_ROWS = 40
CHECKED = {zstd.CompressionParameter.checksum_flag: 1}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".zst": lambda content: zstd.compress(content, options=CHECKED),
}


def row(k: int) -> tuple[str, str]:
    return f'source "{k}" of ärger, {k}', f"Ziel {k} für 漢字, {k}"


ROWS = [row(k) for k in range(NUM_ROWS)]


class Format(NamedTuple):
    """A format: how a row is written and a file read. Lines of a CSV file are records here."""

    write: Callable[[str, str], str]
    read: Callable[[Path], Iterator[Row | ValueError]]
    head: str = ""
    tail: str = ""


FORMATS = {
    "lines": Format(lambda source, target: f"{source}\n", lambda path: read_parallel([path])),
    "tsv": Format(lambda source, target: f"{source}\t{target}\n", lambda path: read_tsv(path, (0, 1))),
    "csv": Format(
        lambda source, target: '"{}","{}"\n'.format(source.replace('"', '""'), target),
        lambda path: read_csv(path, (0, 1)),
    ),
    "jsonl": Format(
        lambda source, target: json.dumps({"s": source, "t": target}, ensure_ascii=False) + "\n",
        lambda path: read_jsonl(path, ("s", "t")),
    ),
    "tmx": Format(
        lambda source, target: (
            f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="de"><seg>{target}</seg></tuv></tu>\n'
        ),
        lambda path: read_tmx(path, ("en", "de")),
        "<tmx><body>",
        "</body></tmx>",
    ),
}
BY_LINE = ("lines", "tsv", "csv", "jsonl")


def content(name: str, num_rows: int = NUM_ROWS) -> bytes:
    text = "".join(FORMATS[name].write(*row(k)) for k in range(num_rows))
    return (FORMATS[name].head + text + FORMATS[name].tail).encode()


def expected(name: str) -> list[Row]:
    return [(source,) for source, _ in ROWS] if name == "lines" else list(ROWS)


def read(rows: Iterator[Row | ValueError], path: Path) -> tuple[list[Row | ValueError], ValueError | None]:
    """All rows up to the error that ends them, if any. Every fault must name the file, in one sentence."""
    found: list[Row | ValueError] = []
    fault = None
    try:
        found.extend(rows)
    except ValueError as error:
        fault = error
    for error in [*found, fault]:
        if not isinstance(error, ValueError):
            continue
        assert type(error) is ValueError
        assert re.fullmatch(r".{20,600}\.", str(error)), error
        assert str(path) in str(error)
    return found, fault


def check(name: str, path: Path, bad: set[int] = frozenset()) -> None:  # type: ignore[assignment]
    """Every row is in its place, but those of `bad` are faults that tell their line."""
    found, fault = read(FORMATS[name].read(path), path)
    assert fault is None
    assert {k for k, row in enumerate(found) if isinstance(row, ValueError)} == set(bad)
    assert [row for k, row in enumerate(found) if k not in bad] == [
        row for k, row in enumerate(expected(name)) if k not in bad
    ]
    for k in bad:
        assert f"line {k + 1}" in str(found[k])


def refused(name: str, path: Path, message: str) -> None:
    """The file ends in this error, and all rows before it are in their places."""
    found, fault = read(FORMATS[name].read(path), path)
    assert fault is not None
    assert re.search(message, str(fault)), fault
    assert found == expected(name)[: len(found)]


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", FORMATS)
def test_cut_compressed_files_are_refused(tmp_path: Path, name: str, suffix: str, part: int) -> None:
    whole = COMPRESS[suffix](content(name))
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[: (len(whole) - 1) * part // 9])
    refused(name, path, r"must be (gzip|xz|Zstandard) by its name, but is damaged" if part else "is empty")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["lines", "jsonl", "tmx"])
def test_a_changed_byte_of_a_compressed_file_never_changes_rows(
    tmp_path: Path, name: str, suffix: str, seed: int
) -> None:
    changed = bytearray(COMPRESS[suffix](content(name)) + COMPRESS[suffix](b""))
    generator = random.Random(f"{name} {suffix} {seed}")
    changed[generator.randrange(len(changed))] ^= generator.randrange(1, 256)
    path = tmp_path / f"changed{suffix}"
    path.write_bytes(changed)
    found, fault = read(FORMATS[name].read(path), path)
    assert fault is not None or found == expected(name)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", FORMATS)
def test_files_of_several_members_are_read_whole(tmp_path: Path, name: str, suffix: str) -> None:
    whole = content(name)
    path = tmp_path / f"members{suffix}"
    path.write_bytes(b"".join(COMPRESS[suffix](whole[k : k + 100]) for k in range(0, len(whole), 100)))
    check(name, path)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", FORMATS)
def test_garbage_after_a_compressed_file_is_refused(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"garbage{suffix}"
    path.write_bytes(COMPRESS[suffix](content(name)) + b"\xfd7zXZ\0 but no xz, and no gzip")
    refused(name, path, "is damaged")


@pytest.mark.parametrize("actual", [*COMPRESS, ""])
@pytest.mark.parametrize("suffix", [*COMPRESS, ".txt"])
@pytest.mark.parametrize("name", BY_LINE)
def test_names_that_tell_a_wrong_compression_are_refused(tmp_path: Path, name: str, suffix: str, actual: str) -> None:
    path = tmp_path / f"wrong{suffix}"
    path.write_bytes(COMPRESS[actual](content(name)) if actual else content(name))
    if (actual or ".txt") == suffix:
        check(name, path)
    else:
        refused(name, path, r"must end in '\.(gz|xz|zst)'\.$" if suffix == ".txt" else "by its name")


@pytest.mark.parametrize("part", range(1, 10))
@pytest.mark.parametrize("name", FORMATS)
def test_cut_plain_files_lose_only_their_end(tmp_path: Path, name: str, part: int) -> None:
    whole = content(name)
    cut = whole[: len(whole) * part // 10]
    path = tmp_path / "cut"
    path.write_bytes(cut)
    found, fault = read(FORMATS[name].read(path), path)
    num_whole = cut.count(b"\n")
    assert found[:num_whole] == expected(name)[:num_whole]
    if name == "tmx":
        assert f"line {num_whole + 1}: must be well-formed XML" in str(fault)
    elif name == "csv" and fault is not None:
        assert f"line {num_whole + 1}: the record that starts there" in str(fault)
    else:
        assert fault is None
        assert len(found) - num_whole in (0, 1)
        if name == "jsonl" and len(found) > num_whole:
            assert isinstance(found[-1], ValueError)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("utf-16", "starts with a UTF-16 byte order mark"),
        ("utf-16-le", "bytes are zero; convert UTF-16"),
        ("utf-16-be", "bytes are zero; convert UTF-16"),
        ("utf-32", "starts with a UTF-32 byte order mark"),
        ("utf-32-be", "bytes are zero; convert UTF-16"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", BY_LINE)
def test_other_encodings_are_refused(tmp_path: Path, name: str, suffix: str, encoding: str, message: str) -> None:
    path = tmp_path / f"file{suffix}"
    encoded = content(name).decode().encode(encoding)
    path.write_bytes(gzip.compress(encoded) if suffix else encoded)
    refused(name, path, message)


@pytest.mark.parametrize(
    "fault", [b"\xff", b"\xe4rger", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe6\xbc"]
)
@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("name", BY_LINE)
def test_bytes_that_are_no_text_spoil_their_row_only(tmp_path: Path, name: str, suffix: str, fault: bytes) -> None:
    lines = content(name).split(b"\n")
    for k in (0, 7, 8, NUM_ROWS - 1):
        lines[k] = lines[k].replace(b"of", fault, 1)
    spoilt = b"\n".join(lines)
    path = tmp_path / f"spoilt{suffix}"
    path.write_bytes(COMPRESS[suffix](spoilt) if suffix else spoilt)
    check(name, path, {0, 7, 8, NUM_ROWS - 1})


@pytest.mark.parametrize("name", BY_LINE)
@pytest.mark.parametrize("change", ["mark", "windows", "mixed", "unfinished"])
def test_harmless_differences_change_nothing(tmp_path: Path, name: str, change: str) -> None:
    lines = content(name).splitlines(keepends=True)
    if change == "mark":
        lines.insert(0, b"\xef\xbb\xbf")
    elif change == "unfinished":
        lines[-1] = lines[-1].removesuffix(b"\n")
    else:
        step = 1 if change == "windows" else 3
        lines[::step] = [line.replace(b"\n", b"\r\n") for line in lines[::step]]
    path = tmp_path / change
    path.write_bytes(b"".join(lines))
    check(name, path)


@pytest.mark.parametrize(
    "inside", ["\0", "\x1c", "\u2028", "\x85", "\x0b", "\x0c", "\ufeff", "\x1a", "\U0010ffff", "x" * 10**6]
)
@pytest.mark.parametrize("name", ["lines", "tsv", "csv"])
def test_unusual_characters_are_text(tmp_path: Path, name: str, inside: str) -> None:
    lines = content(name).decode().split("\n")
    lines[5] = lines[5].replace("of", inside)
    path = tmp_path / "unusual"
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    found, fault = read(FORMATS[name].read(path), path)
    assert fault is None
    wanted = expected(name)
    wanted[5] = (str(wanted[5][0]).replace("of", inside), *wanted[5][1:])
    assert found == wanted


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("what", ["missing", "folder", "empty", "mark"])
def test_files_without_content_are_refused(tmp_path: Path, name: str, suffix: str, what: str) -> None:
    path = tmp_path / f"file{suffix}"
    if what == "folder":
        path.mkdir()
    elif what != "missing":
        text = b"" if what == "empty" else b"\xef\xbb\xbf"
        path.write_bytes(COMPRESS[suffix](text) if suffix else text)
    message = {"missing": "does not exist", "folder": "is a folder"}.get(what, "is empty|well-formed XML")
    refused(name, path, message)


@pytest.mark.parametrize("cut", [1, 60, 2000])
@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("shorter", [0, 1])
def test_unequal_line_counts_are_refused(tmp_path: Path, shorter: int, suffix: str, cut: int) -> None:
    num_lines = [3000, 3000]
    num_lines[shorter] -= cut
    paths = [tmp_path / f"{side}{suffix}" for side in ("en", "de")]
    for side, path in enumerate(paths):
        text = "".join(f"{k}\n" for k in range(num_lines[side])).encode()
        path.write_bytes(COMPRESS[suffix](text) if suffix else text)
    found, fault = read(read_parallel(paths), paths[shorter])
    assert found == [(str(k), str(k)) for k in range(3000 - cut)]
    assert f"{str(paths[0])!r} has {num_lines[0]} and {str(paths[1])!r} has {num_lines[1]}." in str(fault)
