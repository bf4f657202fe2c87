"""Line-exact reading of text files, the same on every machine.

A line ends at the byte 0x0A and nowhere else: other Unicode line separators (U+2028, U+0085, ...) are text. A
last line needs no line end; one carriage return before a line end belongs to it. Text is UTF-8 whatever the
locale, and a byte order mark at the start of a file is no text. A name ending in ``.gz`` is gzip.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_text(path: Path) -> str:
    """All characters of a file, line ends as they are.

    Raises:
        ValueError: The file is missing, a folder, not readable, damaged gzip, empty, or not UTF-8 (naming the
        line).
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise ValueError(f"The file {str(path)!r} does not exist.") from None
    except IsADirectoryError:
        raise ValueError(f"{str(path)!r} must be a file, but is a folder.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"The file {str(path)!r} must be gzip by its name, but is damaged or no gzip: {error}."
        ) from error
    except OSError as error:
        raise ValueError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error
    content = content.removeprefix(BYTE_ORDER_MARK)
    if not content:
        raise ValueError(f"The file {str(path)!r} is empty.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"The file {str(path)!r} must be UTF-8, but line {line} is not: {error.reason}.") from error


def read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends. Raises ValueError as :func:`read_text` does."""
    return split_lines(read_text(path))


def split_lines(text: str) -> list[str]:
    """The lines of `text` without their ends (``\\n`` or ``\\r\\n``)."""
    lines = text.split("\n")
    if lines[-1] == "":
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]


def read_tsv(path: Path, columns: tuple[int | str, int | str]) -> Iterator[tuple[str, str]]:
    """Two columns of tab-separated lines. Quotes are text.

    Args:
        path: The file.
        columns: Both numbers from 0, then there is no header; or both names in the header line.

    Raises:
        ValueError: As :func:`read_text`; a name is not in the header; a line has too few columns.
    """
    lines = read_lines(path)
    first, second = columns
    num_header_lines = 0
    if isinstance(first, str) or isinstance(second, str):
        header = lines[0].split("\t")
        num_header_lines = 1
        for name in columns:
            if header.count(str(name)) != 1:
                raise ValueError(
                    f"{str(path)!r} must have one column {name!r}, but its header has {', '.join(map(repr, header))}."
                )
        first, second = header.index(str(first)), header.index(str(second))
    num_needed = max(first, second) + 1
    for number, line in enumerate(lines[num_header_lines:], start=num_header_lines + 1):
        cells = line.split("\t")
        if len(cells) < num_needed:
            raise ValueError(
                f"{str(path)!r}, line {number}: must have {num_needed} columns or more, but has {len(cells)}."
            )
        yield cells[first], cells[second]


def read_jsonl(path: Path, fields: tuple[str, str]) -> Iterator[tuple[str | None, str | None]]:
    """Two texts of each line's JSON object; None where the value is null.

    Args:
        path: The file.
        fields: Where the texts are; a dot steps into a nested object.

    Raises:
        ValueError: As :func:`read_text`; a line is not a JSON object, lacks a field, or has something else
        than text
            there.
    """
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{str(path)!r}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: must be a JSON object, but is not JSON: {error}.") from error
        yield _text_at(record, fields[0], where), _text_at(record, fields[1], where)


def _text_at(record: object, field: str, where: str) -> str | None:
    value = record
    for step in field.split("."):
        if not isinstance(value, dict):
            raise ValueError(
                f"{where}: must hold an object to look up {step!r} of {field!r} in, but is {_kind(value)}."
            )
        if step not in value:
            raise ValueError(f"{where}: no field {field!r}; there are {', '.join(map(repr, value)) or 'none'}.")
        value = value[step]
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{where}: the field {field!r} must be text, but is {_kind(value)}.")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{where}: the field {field!r} holds half of a surrogate pair, which is not text.")
    return value


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "text"
        case bool():
            return "a truth value"
        case _:
            return "a number"
