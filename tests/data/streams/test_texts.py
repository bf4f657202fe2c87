"""Batches of documents and running text from a stream: every token once, in its order, from any place."""

import itertools
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from transformer.data.batches.collate import TextBatch
from transformer.data.corpora.document_config import DocumentCorpusConfig, JsonlTextConfig, PlainTextConfig
from transformer.data.corpora.sources import open_source
from transformer.data.streams.loader import StreamLoader
from transformer.data.streams.pools import PoolStream
from transformer.data.streams.texts import TextPools
from transformer.data.subwords.config import BpeConfig, ByteConfig
from transformer.data.subwords.tokenizer import Tokenizer

many_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of few cores
LENGTH, ROWS, POOL = 16, 3, 12


@pytest.fixture(scope="module")
def byte() -> Tokenizer:
    return Tokenizer.train(ByteConfig(), [])


def text(number: int) -> str:
    return f"document {number}: " + "abcdefgh "[: number % 9] * (number % 3)


@pytest.fixture
def documents(tmp_path: Path) -> PlainTextConfig:
    """Documents 0 to 29, one a line, in two files."""
    for part, (start, stop) in enumerate([(0, 20), (20, 30)]):
        content = "".join(text(number) + "\n" for number in range(start, stop))
        (tmp_path / f"part-{part}.txt").write_text(content, encoding="utf-8")
    return PlainTextConfig(folder=str(tmp_path), train="part-*.txt", documents="line")


def loader(
    config: DocumentCorpusConfig, tokenizer: Tokenizer, num_batches: int, *, num_workers: int = 0,
    packing: bool = False, dropout: float = 0.0, pool: int = POOL, **ranks: int,
) -> StreamLoader:  # fmt: skip
    source = open_source("texts", config, "train")
    assert source is not None
    pools = TextPools([config], tokenizer, length=LENGTH, rows=ROWS, packing=packing, dropout=dropout, seed=3)
    stream = PoolStream([source], None, pool, pools.prepare, seed=3)
    return StreamLoader(
        stream, pools.open, num_batches, **ranks, identity="", num_workers=num_workers, pin_memory=False
    )  # fmt: skip


def plain(batches: Sequence[TextBatch]) -> list[list[Any]]:
    return [[None if field is None else field.tolist() for field in batch] for batch in batches]


def of_pools(made: StreamLoader, count: int) -> list[list[TextBatch]]:
    """The batches of each of the first pools."""
    pools: dict[int, list[TextBatch]] = {}
    for batch in made:
        number = made.state_dict()["pool"]
        if number >= count:
            break
        pools.setdefault(number, []).append(batch)
    return list(pools.values())


def pairs_of(batches: Sequence[TextBatch]) -> Counter[tuple[int, int]]:
    """How often each token is predicted from each."""
    return Counter(
        pair
        for batch in batches
        for pair in zip(
            batch.tokens_BL[batch.scored_BL].tolist(), batch.labels_BL[batch.scored_BL].tolist(), strict=True
        )
    )


@many_workers
@pytest.mark.parametrize("packing", [False, True])
def test_batches_are_the_same_for_any_workers_and_from_every_place(
    documents: PlainTextConfig, byte: Tokenizer, packing: bool
) -> None:
    make = partial(loader, documents, byte, 40, packing=packing)
    whole = make()
    expected, states = [], [whole.state_dict()]
    for batch in whole:
        expected.append(batch)
        states.append(whole.state_dict())
    in_three_pools = [place for place, state in enumerate(states) if state["pool"] < 3]
    assert 12 < len(in_three_pools) < 38
    for num_workers in (1, 2, 3):
        assert plain(list(make(num_workers=num_workers))) == plain(expected)
    for place in in_three_pools:
        resumed = make(num_workers=place % 3)
        resumed.load_state_dict(states[place])
        assert plain(list(itertools.islice(resumed, 4))) == plain(expected[place : place + 4])


def test_windows_are_the_documents_of_a_pool_one_after_another_in_random_order(
    documents: PlainTextConfig, byte: Tokenizer
) -> None:
    orders = []
    for batches in of_pools(loader(documents, byte, 200, pool=30), 3):  # a pool is a pass
        windows = {
            start: (tokens[scored].tolist(), labels[scored].tolist())
            for batch in batches
            for start, tokens, labels, scored in zip(
                batch.index_B.tolist(), batch.tokens_BL, batch.labels_BL, batch.scored_BL, strict=True
            )
        }
        starts = sorted(windows)
        assert starts == list(range(0, len(starts) * LENGTH, LENGTH))
        assert [start for batch in batches for start in batch.index_B.tolist()] != starts
        assert all(len(batch.index_B) == ROWS for batch in batches[:-1])
        ids = [windows[0][0][0]]
        for start in starts:
            tokens, labels = windows[start]
            assert tokens == [ids[-1], *labels[:-1]]
            assert len(tokens) == LENGTH or start == starts[-1]
            ids += labels
        assert (ids[0], ids[-1]) == (byte.bos_id, byte.eos_id)
        marks = [place for place, index in enumerate(ids) if index == byte.bos_id]
        parts = [ids[start:stop] for start, stop in zip(marks, [*marks[1:], None], strict=True)]
        assert all(part[-1] == byte.eos_id for part in parts)
        texts = [byte.decode(part) for part in parts]
        assert sorted(texts) == sorted(text(number) for number in range(30))
        orders.append(texts)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_packed_documents_are_all_there_and_see_nothing_of_each_other(
    documents: PlainTextConfig, byte: Tokenizer
) -> None:
    expected: Counter[tuple[int, int]] = Counter()
    for number in range(30):
        expected.update(itertools.pairwise([byte.bos_id, *byte.encode(text(number)), byte.eos_id]))
    for batches in of_pools(loader(documents, byte, 200, packing=True, pool=30), 2):
        assert pairs_of(batches) == expected
        assert all(batch.tokens_BL.shape[1] == LENGTH and len(batch.tokens_BL) <= ROWS for batch in batches)


def test_ranks_share_a_pass(documents: PlainTextConfig, byte: Tokenizer) -> None:
    """A pass is six pools of five documents, of which each rank has some rows."""
    expected: Counter[int] = Counter()
    for rank in (0, 1):
        for batches in of_pools(loader(documents, byte, 200, packing=True, pool=5, rank=rank, ranks=2), 6):
            for batch in batches:
                expected.update(batch.labels_BL[batch.scored_BL].tolist())
    assert expected == Counter(index for number in range(30) for index in [*byte.encode(text(number)), byte.eos_id])


def test_running_text_keeps_its_order(tmp_path: Path, byte: Tokenizer) -> None:
    """More than a megabyte is more than one piece; those of a pool are put together as they stand in the file."""
    line = "the quick brown fox jumps over number {}.\n"
    content = "".join(line.format(number) for number in range(30_000))
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", documents="running")
    source = open_source("texts", config, "train")
    assert source is not None
    rows = list(source.rows())
    assert len(rows) == 2
    pools = TextPools([config], byte, length=LENGTH, rows=ROWS, packing=False, dropout=0.0, seed=3)
    (pool,) = itertools.islice(PoolStream([source], None, 2, pools.prepare, seed=3), 1)
    assert byte.decode(pool.content.documents.values.tolist()) == content
    assert byte.bos_id not in pool.content.documents.values


@pytest.mark.parametrize("num_workers", [0, 2])
def test_documents_are_left_out_and_counted(
    tmp_path: Path, byte: Tokenizer, caplog: pytest.LogCaptureFixture, num_workers: int
) -> None:
    lines = ['{"text": "one"}', '{"text": " "}', '{"text": null}', "{", '{"text": "x"}', '{"text": "seven"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    plain_config = {"folder": str(tmp_path), "train": "a.jsonl", "filters": {"min_characters": 2, "broken": "drop"}}
    config = JsonlTextConfig.from_plain(plain_config)
    batches = of_pools(loader(config, byte, 5, pool=6, packing=True, num_workers=num_workers), 1)[0]
    labels = [index for batch in batches for index in batch.labels_BL[batch.scored_BL].tolist()]
    found = "".join(byte.decode([index]) or "|" for index in labels)
    assert sorted(found.removesuffix("|").split("|")) == ["one", "seven"]
    assert caplog.messages[0] == ("of 6 training examples read so far, left out: 2 blank, 1 broken, 1 min_characters.")
    refused = JsonlTextConfig.from_plain(plain_config | {"filters": {}})
    with pytest.raises(ValueError, match=r"a.jsonl', line 4: must be a JSON object, but is not JSON: .*\.$"):
        list(loader(refused, byte, 5, pool=6, num_workers=num_workers))


@pytest.mark.parametrize("packing", [False, True])
def test_nothing_left_is_one_sentence_and_no_endless_loop(tmp_path: Path, byte: Tokenizer, packing: bool) -> None:
    (tmp_path / "a.txt").write_text("ab\n" * 12, encoding="utf-8")
    settings = {"folder": str(tmp_path), "train": "a.txt", "documents": "line", "filters": {"min_characters": 3}}
    message = "^no training example is left: of 1,200 training examples read so far, left out: 1,200 min_characters.$"
    with pytest.raises(ValueError, match=message):
        list(loader(PlainTextConfig.from_plain(settings), byte, 1, packing=packing))


@pytest.mark.parametrize("packing", [False, True])
def test_subwords_drawn_at_random_can_be_repeated_and_differ_between_passes(
    documents: PlainTextConfig, packing: bool
) -> None:
    bpe = Tokenizer.train(BpeConfig(vocab_size=270), [text(number) for number in range(60)])
    make = partial(loader, documents, bpe, 200, packing=packing, dropout=0.3, pool=30)
    first, *others = of_pools(make(), 5)
    again = of_pools(make(num_workers=2), 2)
    assert plain(again[0] + again[1]) == plain(first + others[0])
    # The two files come in one order or the other: five different passes are no matter of the order.
    assert all(pairs_of(one) != pairs_of(other) for one, other in itertools.combinations([first, *others], 2))
    undropped = of_pools(loader(documents, bpe, 200, packing=packing, pool=30), 1)[0]
    assert pairs_of(first).total() > pairs_of(undropped).total()
