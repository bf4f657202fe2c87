"""Pools of rows: every row once in each pass, whatever the workers, and from any place on."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from transformer.data.batches.loading import as_it_is
from transformer.data.corpora.pair_config import HubPairsConfig, TsvConfig
from transformer.data.corpora.rows import Row, Shard
from transformer.data.corpora.sources import Source, open_source, place
from transformer.data.streams.pools import BEGINNING, EndlessRows, PlacedRow, Pool, PoolStream

Named = tuple[int, str]
many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of few cores


def _read(
    name: str, size: int, broken: frozenset[int], fails_at: int | None, skip: int = 0
) -> Iterator[Row | ValueError]:
    for row in range(skip, size):
        if row == fails_at:
            raise ValueError(f"shard {name} ends at {row}.")
        yield ValueError(f"{name}{row} is broken.") if row in broken else (f"{name}{row}",)


def source(name: str, *sizes: int, broken: tuple[int, ...] = (), fails_at: int | None = None) -> Source:
    """A corpus of shards a, b, c, ... whose texts name their shard and row."""
    readers = [
        partial(_read, f"{name}{'abcdef'[shard]}", size, frozenset(broken), fails_at)
        for shard, size in enumerate(sizes)
    ]
    return Source(name, tuple(Shard(read, None, f"{name} {{}}", 0, name) for read in readers), 1)


def names(number: int, rows: list[PlacedRow]) -> list[Named]:
    """What a pool holds: of each row its corpus and text, or the fault."""
    return [(row.corpus, str(row.row) if isinstance(row.row, ValueError) else str(row.row[0])) for row in rows]


def pools_of(stream: PoolStream, count: int, num_workers: int = 0) -> list[Pool]:
    prefetch = 1 if num_workers else None
    loader = DataLoader(stream, batch_size=None, collate_fn=as_it_is, num_workers=num_workers, prefetch_factor=prefetch)
    return list(itertools.islice(loader, count))


def stream_of(*sources: Source, shares: list[float] | None = None, size: int = 10, seed: int = 1) -> PoolStream:
    return PoolStream(sources, shares, size, names, seed=seed)


def test_a_pass_has_every_row_once_and_the_next_one_other_shards_first() -> None:
    rows = EndlessRows(source("x", 3, 5, 1, 4), 7, BEGINNING)
    passes = [[str(row[0]) for _, row in rows.take(13) if isinstance(row, tuple)] for _ in range(8)]
    everything = [f"x{shard}{row}" for shard, size in zip("abcd", (3, 5, 1, 4), strict=True) for row in range(size)]
    orders = set()
    for one in passes:
        assert sorted(one) == everything
        shards = [shard for shard, _ in itertools.groupby(one, key=lambda text: text[1])]
        assert len(shards) == 4  # each from its first to its last row
        assert all([text for text in one if text[1] == shard] == [text for text in everything if text[1] == shard]
                   for shard in shards)  # fmt: skip
        orders.add("".join(shards))
    assert len(orders) > 4


def test_rows_know_their_place_and_go_on_at_any() -> None:
    corpus = source("x", 3, 0, 5, broken=(1,))
    whole = EndlessRows(corpus, 7, BEGINNING)
    taken, cursors = [], [whole.cursor]
    for found in whole.take(20):
        taken.append(found)
        cursors.append(whole.cursor)
    for at, row in taken:
        shard, number = divmod(at, 1 << 40)
        assert at == place(shard, number)
        expected = f"x{'abc'[shard]}{number}"
        assert str(row) == f"{expected} is broken." if isinstance(row, ValueError) else row == (expected,)
    for start, cursor in enumerate(cursors[:18]):
        rest = list(EndlessRows(corpus, 7, cursor).take(20 - start))
        assert [(at, str(row)) for at, row in rest] == [(at, str(row)) for at, row in taken[start:]]


def test_pools_are_numbered_and_together_are_every_row_of_a_pass() -> None:
    """26 rows in pools of 10: three passes are 7.8 pools."""
    pools = pools_of(stream_of(source("x", 20, 6)), 8)
    assert [pool.number for pool in pools] == list(range(8))
    rows = [row for pool in pools for row in pool.content]
    assert [len(pool.content) for pool in pools] == [10] * 8
    for start in (0, 26, 52):
        assert len(set(rows[start : start + 26])) == 26
    assert all(count in (3, 4) for count in Counter(rows).values())


@many_workers
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_pools_do_not_depend_on_the_number_of_workers(num_workers: int) -> None:
    stream = partial(stream_of, source("x", 20, 6), source("y", 9, 30, 2), shares=[0.3, 0.7])
    alone = pools_of(stream(), 7)
    assert pools_of(stream(), 7, num_workers) == alone
    resumed = stream()
    resumed.start = alone[3].number, alone[3].cursors
    assert pools_of(resumed, 4, num_workers) == alone[3:]


def test_another_seed_gives_another_order() -> None:
    first, second = (pools_of(stream_of(source("x", 5, 5, 5, 5), seed=seed), 6) for seed in (1, 2))
    assert [pool.content for pool in first] != [pool.content for pool in second]


def test_a_mixture_has_its_shares_and_uses_up_a_corpus_before_it_repeats() -> None:
    shares = [0.1, 0.6, 0.3]
    corpora = [source("x", 7, 5), source("y", 90), source("z", 40, 60)]
    pools = pools_of(stream_of(*corpora, shares=shares, size=50), 60)
    rows = [row for pool in pools for row in pool.content]
    assert all(len(pool.content) == 50 for pool in pools)
    counts = Counter(corpus for corpus, _ in rows)
    for corpus, (share, size) in enumerate(zip(shares, (12, 90, 100), strict=True)):
        assert counts[corpus] / 3000 == pytest.approx(share, abs=0.03)  # more than three standard deviations
        own = [row for row in rows if row[0] == corpus]
        for start in range(0, len(own) - size + 1, size):
            assert len(set(own[start : start + size])) == size
    in_pools = [sum(corpus == 1 for corpus, _ in pool.content) for pool in pools]
    assert max(in_pools) - min(in_pools) > 3  # drawn, not the same in every pool


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_a_file_that_cannot_be_read_ends_the_pools_in_its_place(num_workers: int) -> None:
    """The fault comes up in pool 5, whoever has that."""
    stream = stream_of(source("x", 200, fails_at=57))
    pools = pools_of(stream, 9, num_workers)
    good = [pool for pool in pools if not isinstance(pool.content, ValueError)]
    assert [pool.number for pool in good] == [0, 1, 2, 3, 4]
    fault = pools[len(good)].content
    assert isinstance(fault, ValueError)
    assert str(fault) == "shard xa ends at 57."


def _refuse(number: int, rows: list[PlacedRow]) -> int:
    if number == 3:
        raise ValueError("pool 3 is refused.")
    return number


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_pool_that_is_refused_arrives_as_its_one_sentence_after_those_before(num_workers: int) -> None:
    pools = pools_of(PoolStream([source("x", 200)], None, 10, _refuse, seed=1), 4, num_workers)
    assert [pool.content for pool in pools[:3]] == [0, 1, 2]
    assert isinstance(pools[3].content, ValueError)
    assert pools[3].content.args == ("pool 3 is refused.",)


@pytest.mark.parametrize("sizes", [(0,), (0, 0)])
def test_a_corpus_without_rows_is_one_sentence_and_no_endless_loop(sizes: tuple[int, ...]) -> None:
    (pool,) = pools_of(stream_of(source("x", *sizes)), 2)
    assert str(pool.content) == "The training split of x must have examples, but is empty."


def test_a_corpus_whose_other_shards_are_empty_goes_on() -> None:
    corpus = source("x", 0, 3, 0)
    assert [str(row) for _, row in EndlessRows(corpus, 1, BEGINNING).take(7)] == [
        str((f"xb{row}",)) for row in (0, 1, 2, 0, 1, 2, 0)
    ]
    at_end = EndlessRows(corpus, 1, BEGINNING)
    list(at_end.take(3))
    assert [str(row) for _, row in EndlessRows(corpus, 1, at_end.cursor).take(2)] == ["('xb0',)", "('xb1',)"]


def _hub(folder: Path) -> Source:
    for part in range(3):
        lines = [f'{{"pair": {{"de": "de{part}{row}", "en": "en{part}{row}"}}}}\n' for row in range(8)]
        (folder / f"train-{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    plain = {"dataset": str(folder), "source_field": "pair.en", "target_field": "pair.de", "validation_split": None}
    found = open_source("hub", HubPairsConfig.from_plain(plain), "train", streaming=True)
    assert found is not None
    return found


def _files(folder: Path) -> Source:
    for part in range(3):
        lines = [f"en{part}{row}\tde{part}{row}\n" for row in range(8)]
        (folder / f"train-{part}.tsv").write_text("".join(lines), encoding="utf-8")
    found = open_source("tsv", TsvConfig(folder=str(folder), train="train-*.tsv"), "train", streaming=True)
    assert found is not None
    return found


@pytest.mark.parametrize("opened", [_hub, _files])
def test_real_files_give_every_row_once_whatever_the_workers(tmp_path: Path, opened: Callable[[Path], Source]) -> None:
    """A data set of several files must not be divided among the workers behind our back: each reads past all rows."""
    found = opened(tmp_path)
    alone = pools_of(PoolStream([found], None, 6, _rows, seed=1), 8)
    assert pools_of(PoolStream([found], None, 6, _rows, seed=1), 8, 2) == alone
    rows = [row for pool in alone for row in pool.content]
    everything = {(f"en{part}{row}", f"de{part}{row}") for part in range(3) for row in range(8)}
    assert set(rows[:24]) == set(rows[24:]) == everything
    resumed = PoolStream([found], None, 6, _rows, seed=1)
    resumed.start = alone[5].number, alone[5].cursors
    assert pools_of(resumed, 3) == alone[5:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_data_set_that_cannot_be_read_is_one_sentence_from_any_worker(tmp_path: Path, num_workers: int) -> None:
    found = _hub(tmp_path)
    (tmp_path / "train-1.jsonl").write_text("{broken\n", encoding="utf-8")
    pools = pools_of(PoolStream([found], None, 6, _rows, seed=1), 2, num_workers)
    assert len(pools[0].content) == 6
    message = str(pools[1].content)
    assert isinstance(pools[1].content, ValueError)
    assert message.startswith(f"row 8 of 'train' of {str(tmp_path)!r} cannot be read: ")
    assert message.endswith(".")
    assert "\n" not in message


def _rows(number: int, rows: list[PlacedRow]) -> list[Row | ValueError]:
    return [row.row for row in rows]
