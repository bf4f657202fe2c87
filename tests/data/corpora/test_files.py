"""Files of text: what is a line, what is text, what is cut where, which files a pattern stands for."""

import gzip
import lzma
import os
import random
import re
import sys
from pathlib import Path

import pytest

from transformer.data.corpora.files import (
    count_lines,
    find_files,
    fingerprint,
    match_shards,
    read_lines,
    read_pieces,
)
from transformer.data.corpora.opening import open_bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\n", [""]),
        (b"a\n\n", ["a", ""]),
        (b" a \t\n", [" a \t"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\n", [""]),
        ("a\u2028b\x85c\x0bd\x0ce\u2029f\x1cg\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\u2029f\x1cg"]),
        (b"a line with a \0 in the middle of it\n", ["a line with a \0 in the middle of it"]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    paths = [written(tmp_path / "file.txt", content)]
    paths += [written(tmp_path / f"file{suffix}", compress(content)) for suffix, compress in COMPRESS.items()]
    for path in paths:
        assert list(read_lines(path)) == lines
        assert count_lines(path) == len(lines)
        for skip in range(1, len(lines) + 2):
            assert list(read_lines(path, skip)) == lines[skip:]


def test_a_line_that_is_not_utf8_keeps_its_place(tmp_path: Path) -> None:
    path = written(tmp_path / "bad.txt", b"a\nb\nc\xc3(\n\xe4\r\nd\r\n")
    for skip in range(5):
        a, b, third, fourth, d = [None] * skip + list(read_lines(path, skip))
        assert (a, b, d)[skip:] == ("a", "b", "d")[skip:]
        if skip <= 2:
            message = r"The file '.*bad\.txt' must be UTF-8, but line 3 is not: invalid continuation byte\."
            assert re.fullmatch(message, str(third))
        if skip <= 3:
            assert isinstance(fourth, ValueError)
            assert "line 4 is not" in str(fourth)
    assert count_lines(path) == 5


def test_lines_across_blocks_and_skips_of_many_lines(tmp_path: Path) -> None:
    generator = random.Random(0)
    lines = ["ä" * generator.randrange(40) + str(k) for k in range(120_000)]
    lines[60_000] = "x" * 3_000_000  # longer than a block
    content = "\n".join(lines).encode()
    path = written(tmp_path / "many.txt", content)
    assert len(content) > 5 << 20
    assert count_lines(path) == 120_000
    assert list(read_lines(path)) == lines
    for skip in (1, 30_000, 59_999, 60_000, 60_001, 119_999, 120_000, 200_000):
        assert list(read_lines(path, skip)) == lines[skip:]


def test_numbers_of_bad_lines_are_right_after_blocks_and_skips(tmp_path: Path) -> None:
    lines = [b"x" * 20] * 150_000
    lines[120_000] = b"\xff"
    path = written(tmp_path / "a.txt", b"\n".join(lines))
    for skip in (0, 7, 119_000, 120_000):
        found = list(read_lines(path, skip))
        assert [k + skip for k, line in enumerate(found) if isinstance(line, ValueError)] == [120_000]
        assert "line 120001 is not" in str(found[120_000 - skip])
    with pytest.raises(ValueError, match=r"a\.txt' must be UTF-8, but line 120001 is not: invalid start byte\."):
        list(read_pieces(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", r"^The file '.*empty\.txt' is empty\.$"),
        ("mark.txt", b"\xef\xbb\xbf", r"^The file '.*mark\.txt' is empty\.$"),
        ("empty.gz", gzip.compress(b"", mtime=0), r"^The file '.*empty\.gz' is empty\.$"),
        (
            "cut.gz",
            gzip.compress(b"a line\n" * 100, mtime=0)[:-9],
            r"^The file '.*cut\.gz' must be gzip by its name, but is",
        ),
        (
            "cut.zst",
            zstd.compress(b"a line\n" * 100)[:-2],
            r"must be Zstandard by its name, but is damaged or no Zstand",
        ),
        ("cut.xz", lzma.compress(b"a line\n" * 100)[:-9], r"must be xz by its name, but is damaged or no xz: it ends"),
        (
            "plain.gz",
            b"a line\n",
            r"^The file '.*plain\.gz' must be gzip by its name, but is damaged or no gzip: Not a",
        ),
        ("mark.txt", "a\n".encode("utf-16"), r"but starts with a UTF-16 byte order mark; convert it, for example with"),
        ("bare.txt", "мир и\n".encode("utf-16-le"), r"but 2 of its first 12 bytes are zero; convert UTF-16, for"),
        (
            "a.txt",
            gzip.compress(b"a line\n", mtime=0),
            r"^The file '.*a\.txt' must be UTF-8, but is gzip data; its name must ",
        ),
        ("a.bz2", b"BZh91AY", r"must be UTF-8, but is bzip2 data; unpack it, or compress it as \.gz, \.xz or \.zst\.$"),
        ("a.zip", b"PK\x03\x04", r"must be UTF-8, but is a ZIP archive; unpack it\.$"),
    ],
)
def test_files_without_text_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = written(tmp_path / name, content)
    for read in (read_lines, read_pieces):
        with pytest.raises(ValueError, match=message):
            list(read(path))
    with pytest.raises(ValueError, match=message):
        count_lines(path)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for read in (count_lines, fingerprint):
        with pytest.raises(ValueError, match=r"^The file '.*nowhere' does not exist\.$"):
            read(tmp_path / "nowhere")
        with pytest.raises(ValueError, match=r"must be a file, but is a folder\.$"):
            read(tmp_path)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ValueError, match=r"^The file 'secret' cannot be read: Permission denied\.$"):
        count_lines(Path("secret"))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_parts_are_read_to_the_very_end(tmp_path: Path, suffix: str) -> None:
    parts = [b"", b"a", b"b\nc\n" * 300_000, b"", b"d"]
    path = written(tmp_path / f"a{suffix}", b"".join(COMPRESS[suffix](part) for part in parts) + b"\0" * 8)
    with open_bytes(path) as stream:
        assert stream.read() == b"".join(parts)
    second = COMPRESS[suffix](b"more\n")
    path.write_bytes(COMPRESS[suffix](b"a line\n") + second[:4] + bytes([second[4] ^ 1]) + second[5:])
    if suffix != ".gz":  # there that byte is a time
        with pytest.raises(ValueError, match="is damaged or no"):
            list(read_lines(path))


def test_natural_order_of_what_a_pattern_stands_for(tmp_path: Path) -> None:
    for name in ("part-10.txt", "part-9.txt", "part-1.txt", "other.txt", "part-2.txt.gz", ".part-3.txt"):
        written(tmp_path / name, b"x")
    (tmp_path / "part-4.txt").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    written(tmp_path / "deep" / "er" / "part-0.txt", b"x")

    def names(patterns: str | tuple[str, ...]) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in find_files(tmp_path, patterns)]

    assert names("part-*.txt") == ["part-1.txt", "part-9.txt", "part-10.txt"]
    assert names(("part-1?.txt", "other.txt", "part-[12].*")) == [
        "part-10.txt",
        "other.txt",
        "part-1.txt",
        "part-2.txt.gz",
    ]
    assert names("**/part-*.txt") == ["deep/er/part-0.txt", "part-1.txt", "part-9.txt", "part-10.txt"]
    assert find_files(Path("elsewhere"), str(tmp_path / "o*.txt")) == [tmp_path / "other.txt"]
    with pytest.raises(ValueError, match=r"^No file in '.*' matches 'x\*'\.$"):
        names("x*")
    with pytest.raises(ValueError, match=r"^The file '.*/x' does not exist\.$"):
        names("x")
    with pytest.raises(ValueError, match=r"deep' must be a file, but is a folder\.$"):
        names("deep")
    with pytest.raises(ValueError, match=r"listed once, but '.*part-1\.txt' is by 'part-1\.txt' and by '\*-1\.txt'\.$"):
        names(("part-1.txt", "*-1.txt"))


def test_a_file_of_exactly_that_name_goes_before_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "odd [name] *"
    folder.mkdir()
    written(folder / "a[1].txt", b"x")
    written(folder / "a1.txt", b"x")
    assert find_files(folder, "a[1].txt") == [folder / "a[1].txt"]
    assert find_files(folder, "a[12].*") == [folder / "a1.txt"]


def test_shards_of_two_sides_belong_together_by_their_wildcards(tmp_path: Path) -> None:
    def touch(*names: str) -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            written(tmp_path / name, b"x")

    def pairs(sources: str | tuple[str, ...], targets: str | tuple[str, ...]) -> list[tuple[str, str]]:
        found = match_shards(tmp_path, sources, targets)
        return [(str(s.relative_to(tmp_path)), str(t.relative_to(tmp_path))) for s, t in found]

    touch("part-1.en", "part-10.en", "part-2.en", "de/part-2", "de/part-1", "de/part-10")
    by_number = [("part-1.en", "de/part-1"), ("part-2.en", "de/part-2"), ("part-10.en", "de/part-10")]
    assert pairs("part-*.en", "de/part-*") == by_number
    assert pairs("./part-*.en", "./de/part-*") == by_number
    assert pairs("part-[0-9].en", "de/part-?") == by_number[:2]
    assert pairs(("part-1.en", "part-2.en"), ("de/part-2", "de/part-1")) == [
        ("part-1.en", "de/part-2"),
        ("part-2.en", "de/part-1"),
    ]
    assert pairs("part-1.en", "de/part-2") == [("part-1.en", "de/part-2")]
    touch("x/1/a.en", "x/2/a.en", "x/1/a.de", "x/2/a.de")
    assert pairs("**/a.en", "**/a.de") == [("x/1/a.en", "x/1/a.de"), ("x/2/a.en", "x/2/a.de")]
    assert pairs("x/[!3]/a.en", "x/*/a.de") == [("x/1/a.en", "x/1/a.de"), ("x/2/a.en", "x/2/a.de")]

    touch("part-3.en")
    with pytest.raises(ValueError, match=r"but '.*part-3\.en' has no partner among 'de/part-\*', where .* for '3'\.$"):
        pairs("part-*.en", "de/part-*")
    touch("de/part-3", "de/part-4")
    with pytest.raises(ValueError, match=r"but '.*de/part-4' has no partner among 'part-\*\.en'"):
        pairs("part-*.en", "de/part-*")
    touch("only-1.en", "only-2.de")
    with pytest.raises(ValueError, match=r"'.*only-1\.en' has no partner among 'only-\*\.de'"):
        pairs("only-*.en", "only-*.de")
    with pytest.raises(ValueError, match=r"there are 1 for 'part-1\.en' and 5 for 'de/part-\*'\.$"):
        pairs("part-1.en", "de/part-*")


def test_fingerprint_is_of_the_content_and_not_of_the_name(tmp_path: Path) -> None:
    content = bytearray(random.Random(0).randbytes(200_000))
    first = written(tmp_path / "a", content)
    os.utime(first, ns=(0, 10**18))
    found = fingerprint(first)
    second = first.rename(tmp_path / "b")
    assert fingerprint(second) == found
    for place in (0, 65_535, 200_000 - 65_536, 199_999):
        changed = bytearray(content)
        changed[place] ^= 1
        os.utime(written(second, changed), ns=(0, 10**18))
        assert fingerprint(second) != found
    os.utime(written(second, content), ns=(0, 10**18))
    assert fingerprint(second) == found
    os.utime(second, ns=(0, 10**18 + 1))
    assert fingerprint(second) != found
    os.utime(written(second, content + b"x"), ns=(0, 10**18))
    assert fingerprint(second) != found
    assert len({fingerprint(written(tmp_path / "c", b"x" * k)) for k in (0, 1, 65_536, 65_537)}) == 4
