"""Rows from files of lines: parallel text, tab-separated columns, JSON objects.

Every line is a row and keeps its number: one that cannot be read is a ValueError in its place, and whoever reads
decides whether that ends the work or is counted and left out. Blank lines are lines.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from transformer.data.corpora import files
from transformer.data.corpora.rows import Row

Columns = Sequence[int] | Sequence[str]


def read_parallel(paths: Sequence[Path], skip: int = 0) -> Iterator[Row | ValueError]:
    """Lines of one file, or of two in step. If either cannot be read, the row cannot.

    Args:
        paths: one file or two.
        skip: so many rows are passed over, quickly.

    Raises:
        ValueError: As :func:`~.files.read_lines`; or, at the end of the shorter file, the files do not
            have equally many lines.
    """
    if len(paths) == 1:
        for line in files.read_lines(paths[0], skip):
            yield line if isinstance(line, ValueError) else (line,)
        return
    source_path, target_path = paths
    for source, target in zip_longest(files.read_lines(source_path, skip), files.read_lines(target_path, skip)):
        if isinstance(source, str) and isinstance(target, str):
            yield source, target
        elif source is None or target is None:
            raise ValueError(
                f"Two parallel files must have equally many lines, but {str(source_path)!r} has "
                f"{files.count_lines(source_path)} and {str(target_path)!r} has {files.count_lines(target_path)}."
            )
        elif isinstance(source, ValueError):
            yield source
        elif isinstance(target, ValueError):
            yield target


def read_tsv(path: Path, columns: Columns, skip: int = 0) -> Iterator[Row | ValueError]:
    """Columns of tab-separated lines. Tabs separate and nothing else: quotes and backslashes are text.

    Args:
        path: the file.
        columns: either numbers from 0, and then there is no header; or names in the header, which is the first line.
        skip: so many rows, the header not counted, are passed over, quickly.

    Raises:
        ValueError: As :func:`~.files.read_lines`, or a name does not stand once in the header.
    """
    numbers, num_header_lines = [column for column in columns if isinstance(column, int)], 0
    if not numbers:
        header = next(files.read_lines(path))
        if isinstance(header, ValueError):
            raise header
        numbers, num_header_lines = find_columns(header.split("\t"), columns, path), 1
    num_needed = max(numbers) + 1
    lines = files.read_lines(path, skip + num_header_lines)
    for line_number, line in enumerate(lines, start=skip + num_header_lines + 1):
        if isinstance(line, ValueError):
            yield line
            continue
        cells = line.split("\t")
        if len(cells) < num_needed:
            yield too_few_columns(path, line_number, num_needed, len(cells))
        else:
            yield tuple([cells[number] for number in numbers])


def find_columns(header: Sequence[str], names: Columns, path: Path) -> list[int]:
    """Numbers of named columns. Raises ValueError for a name that does not stand exactly once in the header."""
    for name in names:
        if header.count(str(name)) != 1:
            raise ValueError(f"{str(path)!r} must have one column {name!r}, but its header has {listing(header)}.")
    return [header.index(str(name)) for name in names]


def too_few_columns(path: Path, line: int, num_needed: int, num_found: int) -> ValueError:
    """The fault of a short line."""
    return ValueError(f"{str(path)!r}, line {line}: must have {num_needed} columns or more, but has {num_found}.")


def read_jsonl(path: Path, fields: Sequence[str], skip: int = 0) -> Iterator[Row | ValueError]:
    """Texts of each line's JSON object; None where the value is null.

    Args:
        path: the file.
        fields: where the texts are; a dot steps into a nested object.
        skip: so many rows are passed over, quickly.

    Raises:
        ValueError: As :func:`~.files.read_lines`.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
    for number, line in enumerate(files.read_lines(path, skip), start=skip + 1):
        if isinstance(line, ValueError):
            yield line
            continue
        where = f"{str(path)!r}, line {number}"
        try:
            record = _record(decoder, line, where)
            row = tuple([text_at(record, field, where) for field in fields])
        except ValueError as error:
            yield error
        else:
            yield row


def text_at(record: object, field: str, where: str) -> str | None:
    """The text at a dotted name in nested dictionaries, None if it is null.

    Args:
        record: the outermost dictionary.
        field: the name; a dot steps into a nested dictionary.
        where: says in messages what record this is.

    Raises:
        ValueError: There is no such field, or it is something else than text.
    """
    value = record
    for step in field.split("."):
        if not isinstance(value, dict):
            raise ValueError(
                f"{where}: must hold an object to look up {step!r} of {field!r} in, but is {_kind(value)}."
            )
        if step not in value:
            raise ValueError(f"{where}: no field {field!r}; there are {listing(value)}.")
        value = value[step]
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{where}: the field {field!r} must be text, but is {_kind(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where}: the field {field!r} holds half of a surrogate pair, which is not text.") from None
    return value


def listing(names: Iterable[object], limit: int = 20) -> str:
    """Names for a message, not more of them than anybody reads."""
    quoted = [repr(name) for name in names]
    more = f" and {len(quoted) - limit} more" if len(quoted) > limit else ""
    return ", ".join(quoted[:limit]) + more or "none"


def _record(decoder: json.JSONDecoder, line: str, where: str) -> object:
    try:
        return decoder.decode(line)
    except json.JSONDecodeError as error:
        fault = f"is not JSON: {error.msg} at character {error.pos + 1}"
    except RecursionError:
        fault = "is nested too deeply"
    except ValueError as error:  # an integer of thousands of digits, and the two faults below
        fault = f"cannot be read: {str(error).split(';')[0]}"
    raise ValueError(f"{where}: must be a JSON object, but {fault}.")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return fields


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


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
