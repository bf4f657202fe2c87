"""Tables of texts and token ids on disk: what is written comes back, wherever record batches end."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from transformer.data.preparation.arrow import TEXT, IdTable, TableWriter, TextTable, id_type

SOURCES = [[1, 2, 3], [], [65_535], [4], [5, 6], []]
TARGETS = [[7], [8, 9], [], [], [10], [11, 12, 13, 14]]
PLACES = [0, 3, 4, 1 << 40, (1 << 40) + 2, (7 << 40) + 5]


def write_ids(path: Path, sizes: Sequence[int], vocab_size: int = 1 << 16) -> IdTable:
    """The six rows above in record batches of these sizes."""
    with TableWriter(path, 2, id_type(vocab_size)) as writer:
        start = 0
        for size in sizes:
            part = slice(start, start + size)
            writer.write([SOURCES[part], TARGETS[part]], PLACES[part])
            start += size
    return IdTable(path)


@pytest.mark.parametrize("sizes", [[6], [1] * 6, [2, 3, 1], [3, 0, 3]])
def test_ids_come_back_whatever_the_record_batches(tmp_path: Path, sizes: list[int]) -> None:
    table = write_ids(tmp_path / "ids.arrow", sizes)
    assert (len(table), table.num_sides) == (6, 2)
    assert [table.ids(row, 0).tolist() for row in range(6)] == SOURCES
    assert [table.ids(row, 1).tolist() for row in range(6)] == TARGETS
    assert table.lengths_NK.tolist() == [[3, 1], [0, 2], [1, 0], [1, 0], [2, 1], [0, 4]]
    assert table.lengths_NK.dtype == np.int32
    assert [table.place(row) for row in range(len(table))] == PLACES
    assert np.concatenate(table.chunks(0)).tolist() == [1, 2, 3, 65_535, 4, 5, 6]
    assert np.concatenate(table.chunks(1)).tolist() == [7, 8, 9, 10, 11, 12, 13, 14]


def test_ids_take_two_bytes_where_the_vocabulary_allows_and_are_read_where_they_lie(tmp_path: Path) -> None:
    small = write_ids(tmp_path / "small.arrow", [6], 1 << 16)
    large = write_ids(tmp_path / "large.arrow", [6], (1 << 16) + 1)
    assert small.ids(0, 0).dtype == np.uint16
    assert large.ids(0, 0).dtype == np.int32
    assert large.ids(2, 0).tolist() == [65_535]
    assert not small.ids(0, 0).flags.owndata
    assert np.shares_memory(small.ids(0, 0), small.chunks(0)[0])


@pytest.mark.parametrize(("vocab_size", "largest"), [(1 << 16, 1 << 16), (1 << 17, 1 << 31)])
def test_ids_that_do_not_fit_are_never_wrapped_around(tmp_path: Path, vocab_size: int, largest: int) -> None:
    with TableWriter(tmp_path / "ids.arrow", 1, id_type(vocab_size)) as writer:
        with pytest.raises(OverflowError):
            writer.write([[[1], [largest]]], [0, 1])
        writer.write([[[1], [largest - 1]]], [0, 1])
    assert IdTable(tmp_path / "ids.arrow").ids(1, 0).tolist() == [largest - 1]


def test_more_ids_than_a_record_batch_holds_are_refused(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "ids.arrow", 1, id_type(9)) as writer:
        message = r"^Rows that are .* at most 2,147,483,647 token ids, but these 4 have 4,294,967,296; cut the longest"
        with pytest.raises(ValueError, match=message):
            writer.write([[range(1 << 30)] * 4], [0, 1, 2, 3])  # in 32 bits their number is 0
        writer.write([[[1]]], [0])
    assert len(IdTable(tmp_path / "ids.arrow")) == 1


TEXTS = [("a\tb\n", "ü"), ("", "\0"), ("漢字😀", "e\u0301"), ("\u2028", "a" * 100_000)]


@pytest.mark.parametrize("sizes", [[4], [1, 3]])
def test_texts_come_back_exactly(tmp_path: Path, sizes: list[int]) -> None:
    with TableWriter(tmp_path / "texts.arrow", 2, TEXT) as writer:
        start = 0
        for size in sizes:
            rows = TEXTS[start : start + size]
            writer.write([[source for source, _ in rows], [target for _, target in rows]], range(start, start + size))
            start += size
    table = TextTable(tmp_path / "texts.arrow")
    assert [table.texts(row) for row in range(len(table))] == TEXTS
    assert [batch.num_rows for batch in table.batches()] == sizes
    assert [table.place(row) for row in range(len(table))] == [0, 1, 2, 3]


def test_single_texts_have_one_side(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "texts.arrow", 1, TEXT) as writer:
        writer.write([["x", "y"]], [5, 9])
    table = TextTable(tmp_path / "texts.arrow")
    assert (table.num_sides, table.texts(1), [table.place(row) for row in range(len(table))]) == (1, ("y",), [5, 9])


def test_a_table_without_rows(tmp_path: Path) -> None:
    with TableWriter(tmp_path / "ids.arrow", 2, id_type(9)) as writer:
        writer.write([[], []], [])
    table = IdTable(tmp_path / "ids.arrow")
    assert (len(table), table.num_sides, table.lengths_NK.shape) == (0, 2, (0, 2))
    assert [table.place(row) for row in range(len(table))] == []
    assert table.chunks(0) == []


def test_a_copy_for_another_process_opens_the_file_itself(tmp_path: Path) -> None:
    table = write_ids(tmp_path / "ids.arrow", [2, 4])
    plain = pickle.dumps(table)
    assert len(plain) < 500  # the path, not the content
    copy = pickle.loads(plain)
    assert [copy.ids(row, 1).tolist() for row in range(6)] == TARGETS
    assert copy.lengths_NK.tolist() == table.lengths_NK.tolist()


def test_a_writer_that_is_interrupted_lets_go_of_its_file(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "ids.arrow", 1, id_type(9))

    def interrupted() -> None:
        with writer:
            writer.write([[[1]]], [0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ValueError, match="closed"):
        writer._file.write(b"x")
