"""Files of text: found, told apart, cut into lines the same way on every machine, and counted.

A line ends at the byte 0x0A and nowhere else: other line separators (U+2028, U+0085, a lone carriage return) are text.
A last line needs no line end; one carriage return at the end of a line is no text. Text is UTF-8 whatever the locale,
and a byte order mark at the start of a file is no text. Zero bytes are text, but a file that is full of them is
refused, because it is none. A name ending in ``.gz``, ``.xz`` or ``.zst`` is decompressed on the way.
"""

import codecs
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

import xxhash

from transformer.data.corpora.opening import named_faults, open_bytes

BLOCK = 1 << 20
"""Bytes worked on at once."""

_NO_TEXT = (
    (codecs.BOM_UTF32_LE, "starts with a UTF-32 byte order mark; convert it, for example with iconv"),
    (codecs.BOM_UTF32_BE, "starts with a UTF-32 byte order mark; convert it, for example with iconv"),
    (codecs.BOM_UTF16_LE, "starts with a UTF-16 byte order mark; convert it, for example with iconv"),
    (codecs.BOM_UTF16_BE, "starts with a UTF-16 byte order mark; convert it, for example with iconv"),
    (b"\x1f\x8b", "is gzip data; its name must end in '.gz'"),
    (b"\xfd7zXZ\0", "is xz data; its name must end in '.xz'"),
    (b"\x28\xb5\x2f\xfd", "is Zstandard data; its name must end in '.zst'"),
    (b"PK\x03\x04", "is a ZIP archive; unpack it"),
    (b"BZh", "is bzip2 data; unpack it, or compress it as .gz, .xz or .zst"),
)

_CUT = re.compile(r"\S\n(?=\S)")
# A word ends here for every tokenizer that looks for words as GPT-2 or its successors do. White space goes with what
# follows: before a word it is part of it, and a line end may be part of the punctuation before it, but of no letter.
# What separates data fields (0x1C to 0x1F) is white space for Python, but not for others.
_WORD_END = re.compile(r"\S(?= )|[^\W_](?=[^\S\x1c-\x1f])")


def read_blocks(path: Path, skip: int = 0, size: int = BLOCK) -> Iterator[tuple[int, bytes]]:
    """Whole lines in blocks of about `size` bytes, each with the number of lines before it.

    Args:
        path: the file.
        skip: so many lines are passed over, quickly.
        size: a block has so many bytes and the rest of the line, less what is skipped.

    Raises:
        ValueError: As :func:`~.opening.open_bytes`, or the file is empty or no UTF-8 text by its beginning.
    """
    with open_bytes(path) as stream:
        block = stream.read(max(size, 16))  # enough for every beginning that is no text
        for beginning, fault in _NO_TEXT:
            if block.startswith(beginning):
                raise ValueError(f"The file {str(path)!r} must be UTF-8, but {fault}.")
        # UTF-16 without a byte order mark: its spaces and line ends give a tenth or more, even in Cyrillic.
        if (zeros := block.count(b"\0")) * 20 > len(block):
            raise ValueError(
                f"The file {str(path)!r} must be UTF-8, but {zeros} of its first {len(block)} bytes are zero; "
                "convert UTF-16, for example with iconv."
            )
        block = block.removeprefix(codecs.BOM_UTF8) + stream.readline()
        if not block:
            raise ValueError(f"The file {str(path)!r} is empty.")
        number = 0
        while block:
            num_lines = block.count(b"\n")
            left = block.split(b"\n", skip - number)[-1] if number < skip <= number + num_lines else block
            if left and skip <= number + num_lines:
                yield max(number, skip), left
            number += num_lines
            block = stream.read(size) + stream.readline()


def read_lines(path: Path, skip: int = 0) -> Iterator[str | ValueError]:
    """The lines of a file without their ends. A line that is not UTF-8 is a ValueError in its place.

    Args:
        path: the file.
        skip: so many lines are passed over, quickly.

    Raises:
        ValueError: As :func:`read_blocks`.
    """
    for number, block in read_blocks(path, skip):
        try:
            text = block.decode()
        except UnicodeDecodeError:
            for line_number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=number + 1):
                yield _decoded(path, line_number, line)
        else:
            lines = text.removesuffix("\n").split("\n")
            yield from (line.removesuffix("\r") for line in lines) if "\r" in text else lines


def read_pieces(path: Path, size: int = BLOCK) -> Iterator[str]:
    """The whole text of a file, all its characters as they are, in pieces that a tokenizer may be given one by one.

    Args:
        path: the file.
        size: a piece has about so many bytes. It ends with a line end between two characters that are no white space:
            subword tokenizers separate words there, while what becomes of a longer run of white space depends on all
            of it. Where there are only blank, indented or very long lines, and those of Windows, pieces have two to
            four times as many, and end with a word. Only a text without a place for that stays in one piece;
            and a symbol with white space inside may be cut.

    Raises:
        ValueError: As :func:`read_blocks`, or a line is not UTF-8.
    """
    enough = 2 * size  # for a piece that ends with a word
    pending: list[str] = []
    length = 0  # of what is pending
    for number, block in read_blocks(path, size=size):
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(path, number + block.count(b"\n", 0, error.start) + 1, error) from None
        cut = 0
        if pending and not _CUT.match(pending[-1][-2:] + text[0]):
            found = _CUT.search(text) or (_WORD_END.search(text) if length > enough else None)
            cut = len(text) if found is None else found.end()
        if pending and cut < len(text):
            yield from cut_at_words("".join([*pending, text[:cut]]), enough)
            pending, length = [], 0
        pending.append(text[cut:] if length == 0 else text)
        length += len(pending[-1])
    yield from cut_at_words("".join(pending), enough)


def cut_at_words(text: str, size: int) -> Iterator[str]:
    """`text` in pieces of `size` to twice as many characters and the rest of a word; a shorter text is one piece.

    Subword tokenizers find the same words in the pieces as in the whole: every cut is between a word and white space.
    """
    start = 0
    while len(text) - start >= 2 * size and (found := _WORD_END.search(text, start + size - 1)):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]


def not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> ValueError:
    """The fault of a line."""
    return ValueError(f"The file {str(path)!r} must be UTF-8, but line {line} is not: {error.reason}.")


def count_lines(path: Path) -> int:
    """Number of lines of a file, a last one without line end included.

    Raises:
        ValueError: As :func:`read_blocks`.
    """
    count = 0
    for number, block in read_blocks(path):
        count = number + block.count(b"\n") + (not block.endswith(b"\n"))
    return count


def find_files(folder: Path, patterns: str | tuple[str, ...]) -> list[Path]:
    """The files that names or patterns stand for.

    Args:
        folder: where relative names and patterns start from.
        patterns: one or several. ``*`` stands for any characters, ``?`` for one, ``[ab]`` for one of those, and ``**``
            for folders inside each other; none of them for a name that starts with a dot. A file of exactly that name
            goes first. What a pattern stands for is sorted by its path, numbers in it by their value: part-2, part-10.

    Raises:
        ValueError: A file does not exist, a pattern stands for none, or a file is listed twice.
    """
    found: dict[Path, str] = {}
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        for path in _matches(folder, pattern):
            if path in found:
                raise ValueError(
                    f"Every file must be listed once, but {str(path)!r} is by {found[path]!r} and by {pattern!r}."
                )
            found[path] = pattern
    return list(found)


def match_shards(
    folder: Path, sources: str | tuple[str, ...], targets: str | tuple[str, ...]
) -> list[tuple[Path, Path]]:
    """Pairs of parallel files.

    Args:
        folder: where relative names and patterns start from.
        sources: files of one side, as :func:`find_files` takes them.
        targets: files of the other. Where each side is one pattern, files belong together whose wildcards stand for
            the same, as in ``part-*.en`` and ``part-*.de``; otherwise the k-th to the k-th.

    Raises:
        ValueError: As :func:`find_files`; a file has no partner, or there are more files on one side.
    """
    source_paths, target_paths = find_files(folder, sources), find_files(folder, targets)
    if (
        isinstance(sources, str)
        and isinstance(targets, str)
        and _is_pattern(folder, sources)
        and _is_pattern(folder, targets)
    ):
        source_of = {_wildcards(folder, sources, path): path for path in source_paths}
        target_of = {_wildcards(folder, targets, path): path for path in target_paths}
        for own, others, pattern in ((source_of, target_of, targets), (target_of, source_of, sources)):
            for key, path in own.items():
                if key not in others:
                    raise ValueError(
                        f"Every file must have its translation, but {str(path)!r} has no partner among {pattern!r}, "
                        f"where the wildcards stand for {', '.join(map(repr, key))}."
                    )
        return [(path, target_of[key]) for key, path in source_of.items()]
    if len(source_paths) != len(target_paths):
        raise ValueError(
            f"There must be as many files on both sides, but there are {len(source_paths)} for {sources!r} "
            f"and {len(target_paths)} for {targets!r}."
        )
    return list(zip(source_paths, target_paths, strict=True))


def fingerprint(path: Path) -> str:
    """What tells cheaply whether a file has changed: size, time of last change, a hash of its first and last 64 KiB.

    Moving or renaming a file changes nothing.

    Raises:
        ValueError: The file is missing, a folder, or not readable.
    """
    edge = 1 << 16
    with named_faults(path), path.open("rb") as file:
        status = os.fstat(file.fileno())
        state = xxhash.xxh3_128(f"{status.st_size} {status.st_mtime_ns} ".encode())
        state.update(file.read(edge))
        file.seek(max(edge, status.st_size - edge))
        state.update(file.read(edge))
    return state.hexdigest()


def _decoded(path: Path, number: int, line: bytes) -> str | ValueError:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        return not_utf8(path, number, error)


def _matches(folder: Path, pattern: str) -> list[Path]:
    path = Path(folder, pattern)
    if not _is_pattern(folder, pattern):
        if path.is_dir():
            raise ValueError(f"{str(path)!r} must be a file, but is a folder.")
        if not path.exists():
            raise ValueError(f"The file {str(path)!r} does not exist.")
        return [path]
    matches = glob.glob(os.path.join(glob.escape(str(folder)), pattern), recursive=True)
    paths = [match for match in map(Path, matches) if not match.is_dir()]
    if not paths:
        raise ValueError(f"No file in {str(folder)!r} matches {pattern!r}.")
    return sorted(paths, key=_by_name_and_number)


def _is_pattern(folder: Path, pattern: str) -> bool:
    return glob.has_magic(pattern) and not Path(folder, pattern).is_file()


def _by_name_and_number(path: Path) -> tuple[list[tuple[str, int]], str]:
    pieces = re.findall(r"([^0-9]*)([0-9]*)", str(path))
    return [(text, int(digits or -1)) for text, digits in pieces], str(path)


def _wildcards(folder: Path, pattern: str, path: Path) -> tuple[str, ...]:
    """What the wildcards of a pattern stand for in one of its matches."""
    pattern = Path(pattern).as_posix()
    name = (path if Path(pattern).is_absolute() else path.relative_to(folder)).as_posix()
    expression = ""
    for number, piece in enumerate(re.split(r"((?:(?<=/)|^)\*\*/|\*+|\?|\[!?\]?[^]]*\])", pattern)):
        if number % 2 == 0:
            expression += re.escape(piece)
        elif piece.startswith("["):
            negated = piece.startswith("[!")
            inside = re.escape(piece[1 + negated : -1]).replace(r"\-", "-")
            expression += f"([{'^' if negated else ''}{inside}])"
        elif piece.endswith("/"):
            expression += "((?:.*/)?)"
        else:
            expression += {"*": "([^/]*)", "?": "([^/])"}.get(piece, "(.*)")
    found = re.fullmatch(expression, name, flags=re.DOTALL)
    assert found is not None, (pattern, name)
    return found.groups()
