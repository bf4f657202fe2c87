"""Texts and token ids in Arrow files, written in one pass and read by memory mapping."""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

IntArray = npt.NDArray[np.int64]
Ids = npt.NDArray[Any]  # of uint16 or int32
TokenIds = Sequence[int] | Ids

PLACES = "place"
MAX_IDS = (1 << 31) - 1  # of a side of a record batch: Arrow's lists have offsets of 32 bits


def side_names(num_sides: int) -> tuple[str, ...]:
    """Columns of a table of pairs, or of single texts."""
    return ("source", "target") if num_sides == 2 else ("text",)


class TableWriter:
    """Writes rows of texts, or of token ids, with the place that each comes from.

    Args:
        path: the file.
        num_sides: 2 for pairs, 1 for single texts.
        kind: what a side is: a text, or the ids of a vocabulary of so many tokens.
    """

    def __init__(self, path: Path, num_sides: int, kind: pa.DataType) -> None:
        names = side_names(num_sides)
        self._schema = pa.schema([*((name, kind) for name in names), (PLACES, pa.int64())])
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)

    def write(self, sides: Sequence[Sequence[Any]], places: Sequence[int]) -> None:
        """Add rows, one sequence for each side; they make a record batch of their own.

        Raises:
            ValueError: They have more token ids than a record batch holds.
        """
        if len(places) == 0:
            return
        columns = [_column(side, field.type) for side, field in zip(sides, self._schema, strict=False)]
        columns.append(pa.array(places, type=pa.int64()))
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        self._file.close()


def _column(side: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(side, type=kind)
    total = sum(map(len, side))
    if total > MAX_IDS:
        raise ValueError(
            f"Rows that are written at once must have at most {MAX_IDS:,} token ids, but these {len(side):,} have "
            f"{total:,}; cut the longest text into several."
        )
    # Much faster than converting the nested lists.
    ends = np.cumsum([0, *map(len, side)], dtype=np.int32)
    flat = np.fromiter(itertools.chain.from_iterable(side), dtype=kind.value_type.to_pandas_dtype(), count=ends[-1])
    return pa.ListArray.from_arrays(ends, flat)


TEXT = pa.large_string()


def id_type(vocab_size: int) -> pa.DataType:
    """The smallest type of lists of ids below `vocab_size`."""
    return pa.list_(pa.uint16() if vocab_size <= 1 << 16 else pa.int32())


class _Table:
    """An Arrow file that is read where it lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(self.path)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)
        self._starts = [0, *ends.tolist()][:-1]
        self._num_rows = int(ends[-1]) if len(ends) else 0
        self.num_sides = len(reader.schema) - 1

    def __len__(self) -> int:
        return self._num_rows

    def __getstate__(self) -> Path:  # for workers that are started anew: they open the file themselves
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.__init__(path)  # type: ignore[misc]

    def _locate(self, row: int) -> tuple[int, int]:
        number = bisect_right(self._starts, row) - 1
        return number, row - self._starts[number]

    def place(self, row: int) -> int:
        """Where a row comes from."""
        number, inside = self._locate(row)
        return int(self._batches[number].column(self.num_sides)[inside].as_py())


class TextTable(_Table):
    """Rows of texts."""

    def texts(self, row: int) -> tuple[str, ...]:
        """The texts of a row."""
        number, inside = self._locate(row)
        batch = self._batches[number]
        return tuple(batch.column(side)[inside].as_py() for side in range(self.num_sides))

    def batches(self) -> Sequence[pa.RecordBatch]:
        """All rows in their order, about 10,000 at once."""
        return self._batches


class IdTable(_Table):
    """Rows of token ids.

    Attributes:
        lengths_NK: number of ids on each side of each row, int32.
    """

    def _open(self) -> None:
        super()._open()
        self._sides = [
            [(column.values.to_numpy(), column.offsets.to_numpy()) for column in batch.columns[: self.num_sides]]
            for batch in self._batches
        ]
        lengths = [np.stack([np.diff(offsets) for _, offsets in sides], axis=1) for sides in self._sides]
        empty = np.zeros((0, self.num_sides), np.int32)
        self.lengths_NK = np.concatenate(lengths) if lengths else empty

    def ids(self, row: int, side: int) -> Ids:
        """The ids of one side of a row; a view of the file."""
        number, inside = self._locate(row)
        values, offsets = self._sides[number][side]
        view: Ids = values[offsets[inside] : offsets[inside + 1]]
        return view

    def chunks(self, side: int) -> list[Ids]:
        """All ids of a side, one row after another, in large pieces that are views of the file."""
        pieces = []
        for sides in self._sides:
            values, offsets = sides[side]
            pieces.append(values[offsets[0] : offsets[-1]])
        return pieces
