"""Batches of sentence pairs from a stream: the same for any workers, from any place; rows left out are counted."""

import itertools
import multiprocessing
import pickle
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from transformer.data.batches.collate import TranslationBatch
from transformer.data.batches.config import BatchingConfig
from transformer.data.batches.pairs import PairTokenizers
from transformer.data.corpora.pair_config import TsvConfig
from transformer.data.corpora.sources import open_source
from transformer.data.streams.loader import MAX_EMPTY_POOLS, StreamLoader
from transformer.data.streams.pairs import PairPools
from transformer.data.streams.pools import PlacedRow, PoolStream
from transformer.data.subwords.config import BpeConfig, ByteConfig
from transformer.data.subwords.tokenizer import Tokenizer

many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of few cores
WIDTH, BUDGET, POOL = 40, 80, 12


@pytest.fixture(scope="module")
def joint() -> PairTokenizers:
    tokenizer = Tokenizer.train(ByteConfig(), [], ["<2de>"])
    return PairTokenizers(tokenizer, tokenizer)


@pytest.fixture(scope="module")
def bpe() -> PairTokenizers:
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=268), [text(number) for number in range(60)], ["<2de>"])
    return PairTokenizers(tokenizer, tokenizer)


def text(number: int) -> str:
    return f"number {number} " + "xyz "[: number % 5]


def write(folder: Path, parts: Sequence[Sequence[str]], name: str = "part") -> TsvConfig:
    for part, lines in enumerate(parts):
        content = "".join(line + "\n" for line in lines)
        (folder / f"{name}-{part}.tsv").write_bytes(content.encode("utf-8", "surrogateescape"))
    return TsvConfig(folder=str(folder), train=f"{name}-*.tsv")


def lines(start: int, stop: int) -> list[str]:
    return [f"{text(number)}\t{text(number)}" for number in range(start, stop)]


@pytest.fixture
def corpus(tmp_path: Path) -> TsvConfig:
    """Rows 0 to 29 in two files."""
    return write(tmp_path, [lines(0, 20), lines(20, 30)])


def loader(
    corpora: TsvConfig | Sequence[TsvConfig], tokenizers: PairTokenizers, num_batches: int, *, num_workers: int = 0,
    packing: bool = False, over_long: Any = None, limit: int = WIDTH, dropout: float = 0.0, identity: str = "",
    shares: list[float] | None = None, pool: int = POOL, **ranks: int,
) -> StreamLoader:  # fmt: skip
    configs = [corpora] if isinstance(corpora, TsvConfig) else list(corpora)
    found = [open_source(f"corpus {number}", config, "train") for number, config in enumerate(configs)]
    sources = [source for source in found if source is not None]
    batching = BatchingConfig(max_tokens_per_batch=BUDGET, over_long=over_long, packing=packing)
    pools = PairPools(sources, configs, tokenizers, batching, limit=limit, width=WIDTH, dropout=dropout, seed=3)
    stream = PoolStream(sources, shares, pool, pools.prepare, seed=3)
    return StreamLoader(
        stream, pools.open, num_batches, **ranks, identity=identity, num_workers=num_workers, pin_memory=False
    )  # fmt: skip


def plain(batches: Sequence[TranslationBatch]) -> list[list[Any]]:
    return [[None if field is None else field.tolist() for field in batch] for batch in batches]


def rows_of(batches: Sequence[TranslationBatch]) -> list[tuple[int, int, int]]:
    """Corpus, shard and row of each example."""
    indices = [index for batch in batches for index in batch.index_B.tolist()]
    return [(index >> 56, (index >> 40) & 0xFFFF, index & ((1 << 40) - 1)) for index in indices]


@many_workers
@pytest.mark.parametrize("packing", [False, True])
def test_batches_are_the_same_for_any_workers_and_from_every_place(
    corpus: TsvConfig, joint: PairTokenizers, packing: bool
) -> None:
    make = partial(loader, corpus, joint, 22, packing=packing)
    whole = make()
    expected, states = [], [whole.state_dict()]
    for batch in whole:
        expected.append(batch)
        states.append(whole.state_dict())
    assert len(expected) == len(whole) == 22
    in_three_pools = [place for place, state in enumerate(states) if state["pool"] < 3]
    assert len(in_three_pools) > 6
    for num_workers in (1, 2, 3):
        assert plain(list(make(num_workers=num_workers))) == plain(expected)
    for place in in_three_pools:
        resumed = make(num_workers=place % 4)
        resumed.load_state_dict(states[place])
        assert resumed.state_dict() == states[place]
        assert plain(list(itertools.islice(resumed, 5))) == plain(expected[place : place + 5])
        if place % 4 == 0:  # and a run that was resumed can be resumed
            again = make()
            again.load_state_dict(resumed.state_dict())
            assert plain(list(again)) == plain(expected[place + 5 :])


@pytest.mark.parametrize("packing", [False, True])
def test_a_pass_is_every_row_once_and_each_batch_has_the_rows_it_names(
    tmp_path: Path, joint: PairTokenizers, packing: bool
) -> None:
    corpora = [write(tmp_path, [lines(0, 20), lines(20, 30)], "x"), write(tmp_path, [lines(30, 60)], "y")]
    corpora[0] = corpora[0].model_copy(update={"tag": "<2de>"})
    batches = list(loader(corpora, joint, 40, packing=packing, shares=[0.5, 0.5]))
    tag = joint.source.tag_id("<2de>")
    for batch in batches:
        padded = batch.source_BS.numel()
        assert padded <= BUDGET
        segments = (
            torch.arange(1, len(batch.index_B) + 1)[:, None] * batch.source_mask_BS
            if batch.source_segments_BS is None
            else batch.source_segments_BS + 100 * torch.arange(len(batch.source_BS))[:, None]
        )
        found = [batch.source_BS[(segments == mark) & batch.source_mask_BS].tolist() for mark in segments.unique()]
        expected = []
        for number, shard, row in rows_of([batch]):
            ids = joint.source.encode(text(30 * number + 20 * shard + row))
            expected.append([*([tag] if number == 0 else []), *ids, joint.source.eos_id])
        assert [ids for ids in found if ids] == expected
    named = rows_of(batches)
    for number in (0, 1):
        assert len({row for row in named if row[0] == number}) == 30


def test_ranks_share_a_pass_without_repeating_a_row(corpus: TsvConfig, joint: PairTokenizers) -> None:
    """Two pools are a pass of 30 rows; no rank is ever in another pool, or farther in it, than the other."""
    ranks = [loader(corpus, joint, 40, pool=15, rank=rank, ranks=2) for rank in (0, 1)]
    rows: list[tuple[int, int, int]] = []
    states = []
    for one, other in zip(*ranks, strict=True):
        states.append(ranks[0].state_dict())
        assert ranks[1].state_dict() == states[-1]
        if states[-1]["pool"] < 2:
            rows += rows_of([one, other])
    assert sorted(rows) == [(0, shard, row) for shard, size in ((0, 20), (1, 10)) for row in range(size)]
    for rank in (0, 1):  # every rank goes on from the state that the first one saved
        whole = plain(list(loader(corpus, joint, 40, pool=15, rank=rank, ranks=2)))
        for taken in (1, 2, 3, 5):
            resumed = loader(corpus, joint, 40, pool=15, rank=rank, ranks=2)
            resumed.load_state_dict(states[taken - 1])
            assert plain(list(resumed)) == whole[taken:]
    with pytest.raises(ValueError, match=r"^this run was saved with 2 devices, which share the batches, and cannot"):
        loader(corpus, joint, 40, pool=15).load_state_dict(states[0])


def with_filters(config: TsvConfig, **filters: Any) -> TsvConfig:
    return TsvConfig.from_plain(config.to_plain() | {"filters": filters})


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_are_left_out_and_counted(
    tmp_path: Path, joint: PairTokenizers, caplog: pytest.LogCaptureFixture, num_workers: int
) -> None:
    """Of twelve rows in a pool one cannot be read, one is blank, two are filtered and one is too long."""
    content = [*lines(0, 7), "no tab", " \tx", "short\tx", "x\tshort", f"{'y' * WIDTH}\tlonger"]
    config = with_filters(write(tmp_path, [content]), min_characters=2, broken="drop")
    batches = list(loader(config, joint, 20, num_workers=num_workers))
    assert {row for _, _, row in rows_of(batches)} == set(range(7))
    assert caplog.messages[0] == (
        "of 12 training examples read so far, left out: 2 min_characters, 1 broken, 1 blank, 1 too long."
    )
    # Said again whenever it has doubled.
    assert [message.split()[1] for message in caplog.messages] == ["12", "24", "48", "96"]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tab", r"part-0.tsv', line 21: must have 2 columns or more, but has 1\."),
        ("\udcff\tx", r"part-0.tsv' must be UTF-8, but line 21 is not: invalid start byte\."),
    ],
)
def test_a_broken_row_is_the_same_sentence_from_any_worker(
    tmp_path: Path, joint: PairTokenizers, num_workers: int, line: str, message: str
) -> None:
    config = write(tmp_path, [[*lines(0, 20), line, *lines(20, 30)]])
    batches: list[TranslationBatch] = []
    before = set(multiprocessing.active_children())
    with pytest.raises(ValueError, match=message) as raised:
        batches.extend(loader(config, joint, 30, num_workers=num_workers))
    assert "\n" not in str(raised.value)
    assert set(multiprocessing.active_children()) <= before  # though the error is still there, the workers are not
    assert {row for _, _, row in rows_of(batches)} == set(range(12))  # all of the pool before
    assert len(list(loader(with_filters(config, broken="drop"), joint, 30, num_workers=num_workers))) == 30


def test_pairs_longer_than_the_limit(tmp_path: Path, joint: PairTokenizers, caplog: pytest.LogCaptureFixture) -> None:
    config = write(tmp_path, [["abc\tx", "x\tabcd", "abcde\tabcdef"]]).model_copy(update={"tag": "<2de>"})
    make = partial(loader, config, joint, 1, limit=5, pool=3)
    (batch,) = make()
    assert rows_of([batch]) == [(0, 0, 0), (0, 0, 1)] or rows_of([batch]) == [(0, 0, 1), (0, 0, 0)]
    assert caplog.messages == ["of 3 training examples read so far, left out: 1 too long."]
    caplog.clear()
    (batch,) = make(over_long="truncate")
    found = {row: ids[mask].tolist() for (_, _, row), ids, mask in
             zip(rows_of([batch]), batch.source_BS, batch.source_mask_BS, strict=True)}  # fmt: skip
    tag, eos = joint.source.tag_id("<2de>"), joint.source.eos_id
    assert found[2] == [tag, *joint.source.encode("abc"), eos]
    labels = batch.labels_BT[[row for _, _, row in rows_of([batch])].index(2)]
    assert labels.tolist() == [*joint.target.encode("abcd"), eos]
    assert "cut: 1 too long" in caplog.messages[0]
    with pytest.raises(ValueError, match=r"part-0.tsv', line 3: this pair has 7 tokens, more than 5\.$"):
        list(make(over_long="error"))


def test_nothing_left_is_one_sentence_and_no_endless_loop(tmp_path: Path, joint: PairTokenizers) -> None:
    config = with_filters(write(tmp_path, [lines(0, 12)]), min_characters=100)
    expected = "no training example is left: of 1,200 training examples read so far, left out: 1,200 min_characters."
    assert MAX_EMPTY_POOLS == 100
    for num_workers in (0, 2):
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
            list(loader(config, joint, 1, num_workers=num_workers))


def test_pools_without_examples_between_others_are_passed_over(tmp_path: Path, joint: PairTokenizers) -> None:
    """A pool has three rows; of 120 of them only one is not too short."""
    config = with_filters(write(tmp_path, [["a\tb"] * 359 + ["long enough\tlong enough"]]), min_characters=5)
    with pytest.raises(ValueError, match="no training example is left: of 300 training examples"):
        list(loader(config, joint, 1, pool=3))
    batches = list(loader(config, joint, 3, pool=4))
    assert rows_of(batches) == [(0, 0, 359)] * 3


def test_other_data_are_not_gone_on_with(corpus: TsvConfig, joint: PairTokenizers) -> None:
    state = loader(corpus, joint, 9, identity="one").state_dict()
    with pytest.raises(ValueError, match=r"^the training data, .* have changed since .*; start a new run\.$"):
        loader(corpus, joint, 9, identity="other").load_state_dict(state)
    loader(corpus, joint, 9, identity="one").load_state_dict(state)


def test_subwords_drawn_at_random_can_be_repeated_and_differ_between_passes(
    corpus: TsvConfig, bpe: PairTokenizers
) -> None:
    make = partial(loader, corpus, bpe, 60, dropout=0.3, pool=30)  # a pool is a pass
    alone = list(make())
    assert plain(list(make(num_workers=2))) == plain(alone)
    cuts: dict[tuple[int, int, int], set[tuple[int, ...]]] = {}
    for batch in alone:
        for row, ids, mask in zip(rows_of([batch]), batch.source_BS, batch.source_mask_BS, strict=True):
            cuts.setdefault(row, set()).add(tuple(ids[mask].tolist()))
            assert bpe.source.decode(ids[mask].tolist()) == text(20 * row[1] + row[2])
    # The two files come in one order or the other: more than two cuts are no matter of the order.
    assert sum(len(found) > 2 for found in cuts.values()) > 15


def test_subwords_drawn_at_random_never_make_a_pair_too_long(corpus: TsvConfig, bpe: PairTokenizers) -> None:
    longest = max(len(bpe.source.encode(text(number))) for number in range(30)) + 1
    batches = list(loader(corpus, bpe, 12, dropout=0.5, limit=longest, over_long="error"))
    assert set(rows_of(batches)) == {(0, number // 20, number % 20) for number in range(30)}
    assert max(batch.source_BS.shape[1] for batch in batches) == longest
    plain_cuts = {tuple(bpe.source.encode(text(number))) for number in range(30)}
    ids = [tuple(row[mask].tolist()[:-1]) for batch in batches
           for row, mask in zip(batch.source_BS, batch.source_mask_BS, strict=True)]  # fmt: skip
    assert 3 < sum(row in plain_cuts for row in ids) < len(ids) - 3  # some fall back, some are drawn


def test_a_stream_goes_to_workers_that_are_started_anew(tmp_path: Path, bpe: PairTokenizers) -> None:
    config = with_filters(write(tmp_path, [[*lines(0, 8), "</s> <2de>\tab", "z\tz"]]), min_characters=2)
    stream = loader(config, bpe, 1, dropout=0.3).stream
    bpe.source.sampled("has been used", 0.3, Random(1))
    copy = pickle.loads(pickle.dumps(stream))
    rows = [PlacedRow(0, at, row) for at, row in stream.sources[0].rows()]
    one, other = stream.prepare(0, rows), copy.prepare(0, rows)
    assert one.dropped == other.dropped == {"min_characters": 1}
    assert one.sources.values.tolist() == other.sources.values.tolist()
    assert list(copy.sources[0].rows()) == list(stream.sources[0].rows())
