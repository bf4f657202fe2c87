"""Rows from tables: comma-separated values and Parquet."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transformer.data.corpora.files import not_utf8, read_blocks
from transformer.data.corpora.opening import named_faults
from transformer.data.corpora.readers import Columns, find_columns, listing, too_few_columns
from transformer.data.corpora.rows import Row

MAX_CELL = 1 << 24
"""Characters of a cell of comma-separated values. A quote that is never closed is noticed after as many."""

_ROWS = 10_000
"""Rows of a Parquet file held at once."""


def read_csv(path: Path, columns: Columns, delimiter: str = ",", skip: int = 0) -> Iterator[Row | ValueError]:
    """Columns of comma-separated values with quoted cells (RFC 4180), which may hold delimiters and line ends.

    A quote inside a cell that does not start with one is text. Every record is a row, blank lines too; one with too few
    columns or with a line that is not UTF-8 is a ValueError in its place.

    Args:
        path: the file.
        columns: either numbers from 0, and then there is no header; or names in the header, the first record.
        delimiter: the one character between cells.
        skip: so many records, the header not counted, are passed over. They are parsed all the same.

    Raises:
        ValueError: As :func:`~.files.read_lines`; a name does not stand once in the header; or quotes do
            not match, which makes everything after them doubtful.
    """
    numbers = [column for column in columns if isinstance(column, int)]
    records = _records(path, delimiter)
    if not numbers:
        _, header = next(records)
        if isinstance(header, ValueError):
            raise header
        numbers = find_columns(header, columns, path)
    num_needed = max(numbers) + 1
    for line, record in islice(records, skip, None):
        if isinstance(record, ValueError):
            yield record
        elif len(record) < num_needed:
            yield too_few_columns(path, line, num_needed, len(record))
        else:
            yield tuple([record[number] for number in numbers])


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | ValueError]]:
    """All records, each with the number of its first line."""
    csv.field_size_limit(MAX_CELL)  # for the whole process; its default, 128 KiB, is less than a long document
    faults: list[ValueError] = []
    reader = csv.reader(_text_lines(path, faults), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fault = str(error).split(" - ")[0]
            raise ValueError(
                f"{str(path)!r}, line {line}: the record that starts there must be comma-separated values with "
                f"matching quotes, but is not: {fault}."
            ) from None
        yield line, faults[0] if faults else record
        faults.clear()


def _text_lines(path: Path, faults: list[ValueError]) -> Iterator[str]:
    """All lines with their ends. Those that are not UTF-8 are added to `faults`; quotes and delimiters stay in them."""
    number = 0
    for _, block in read_blocks(path):
        for raw in io.BytesIO(block):
            number += 1
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                faults.append(not_utf8(path, number, error))
                line = raw.decode(errors="replace")
            yield line


def read_parquet(path: Path, fields: Sequence[str], skip: int = 0) -> Iterator[Row | ValueError]:
    """Text columns of a Parquet file; None where the value, or an object around it, is null.

    Args:
        path: the file.
        fields: names of columns; a dot steps into a struct. Only these are read.
        skip: so many rows are passed over; whole row groups are not even read.

    Raises:
        ValueError: The file is missing, a folder, not readable, empty or damaged; or a field is not there or no text.
    """
    with _open_parquet(path) as file:
        with _parquet_faults(path):
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            schema = file.schema_arrow
        for field in fields:
            _check_text(schema, field, path)
        first, rest = 0, skip
        while first < len(groups) and rest >= groups[first]:
            rest -= groups[first]
            first += 1
        batches = file.iter_batches(_ROWS, range(first, len(groups)), columns=list(fields), use_threads=False)
        number = skip - rest + 1
        while True:
            with _parquet_faults(path):
                if (batch := next(batches, None)) is None:
                    break
                sides = [_texts(batch, field, path, number) for field in fields]
            for row in islice(zip(*sides, strict=True), max(rest, 0), None):
                fault = next((text for text in row if isinstance(text, ValueError)), None)
                yield row if fault is None else fault
            number += batch.num_rows
            rest -= batch.num_rows
        num_told = file.metadata.num_rows
        if number - 1 != num_told:  # a footer has no checksum
            raise ValueError(f"The file {str(path)!r} must have the {num_told} rows it tells of, but has {number - 1}.")


def count_parquet_rows(path: Path) -> int:
    """Number of rows. Raises ValueError as :func:`read_parquet`."""
    with _open_parquet(path) as file, _parquet_faults(path):
        return int(file.metadata.num_rows)


@contextmanager
def _open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    with named_faults(path), path.open("rb") as opened:
        if not opened.read(1):
            raise ValueError(f"The file {str(path)!r} is empty.")
    with _parquet_faults(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
    with file:
        yield file


@contextmanager
def _parquet_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"The file {str(path)!r} cannot be read as Parquet: {reason}.") from error


def _check_text(schema: pa.Schema, field: str, path: Path) -> None:
    names, step_into = schema.names, schema.field
    for step in field.split("."):
        if names.count(step) != 1:
            raise ValueError(f"{str(path)!r} has no field {field!r}; there are {listing(_leaves(schema))}.")
        kind = step_into(step).type
        names = [inner.name for inner in kind] if pa.types.is_struct(kind) else []
        step_into = kind.field if names else schema.field
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)):
        raise ValueError(f"The field {field!r} of {str(path)!r} must be text, but is {kind}.")


def _leaves(fields: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{before}{field.name}.")
        else:
            yield before + field.name


def _texts(batch: pa.RecordBatch, field: str, path: Path, number: int) -> list[str | ValueError | None]:
    """The texts of a field, from row `number` on."""
    name, *inner = field.split(".")
    column = batch.column(name)
    if inner:
        column = pc.struct_field(column, inner)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return cast("list[str | ValueError | None]", column.to_pylist())
    except UnicodeDecodeError:
        where = f"{str(path)!r}, row"
        return [_text(value, f"{where} {row}: the field {field!r}") for row, value in enumerate(column, start=number)]


def _text(value: pa.Scalar, what: str) -> str | ValueError | None:
    try:
        return cast("str | None", value.as_py())
    except UnicodeDecodeError as error:
        return ValueError(f"{what} must be UTF-8, but is not: {error.reason}.")
