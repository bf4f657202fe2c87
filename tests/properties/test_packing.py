"""Properties of packing, for any lengths: nothing is lost, and no example notices its neighbours."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.batches.packing import PackedBatches, collate_packed_pairs, collate_packed_texts, pack, split_long
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import cross_entropy

VOCAB, CAPACITY = 13, 9
few = settings(max_examples=50, derandomize=True, deadline=None, database=None)
positions = st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"])
lengths = st.integers(1, CAPACITY)
ids = st.lists(st.integers(3, VOCAB - 1), max_size=CAPACITY - 1)


@pytest.fixture(scope="module", autouse=True)
def _float64() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(dtype)


@given(st.integers(1, 3).flatmap(lambda sides: st.lists(st.tuples(*[lengths] * sides), min_size=1, max_size=60)))
@few
def test_packing_takes_each_example_once_and_no_two_rows_could_be_one(examples: list[tuple[int, ...]]) -> None:
    lengths_NK = np.array(examples)
    rows = pack(lengths_NK, CAPACITY)
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(examples)))
    assert all(lengths_NK[row].sum(axis=0).max() <= CAPACITY for row in rows)
    for first in range(len(rows)):
        for second in range(first):
            both = np.concatenate([rows[first], rows[second]])
            assert lengths_NK[both].sum(axis=0).max() > CAPACITY


@given(st.lists(lengths, min_size=6, max_size=60), st.integers(2, 5), st.integers(1, 3), st.integers(0, 99))
@few
def test_epochs_take_each_example_once(examples: list[int], rows: int, ranks: int, seed: int) -> None:
    lengths_N1 = np.array(examples)[:, None]
    batches = PackedBatches(lengths_N1, capacity=CAPACITY, rows=rows, seed=seed, ranks=ranks)
    for epoch in range(2):
        made = list(batches.epoch(epoch))
        assert len(made) == batches.num_batches(epoch)
        assert len(made) % ranks == 0
        assert sorted(np.concatenate([row for batch in made for row in batch]).tolist()) == list(range(len(examples)))


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8), positions, st.integers(0, 99))
@few
def test_packed_pairs_have_the_loss_of_pairs_alone(
    pairs: list[tuple[list[int], list[int]]], position: str, seed: int
) -> None:
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 2, "tie_embeddings": "decoder"}
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "max_length": CAPACITY, "position": position, "dropout": 0.0}
    torch.manual_seed(seed)
    plain = {"name": "encoder_decoder", **layers, **sizes, "initialization": "normal", "init_std": 0.3}
    model = EncoderDecoder(EncoderDecoderConfig.from_plain(plain), VOCAB, VOCAB)
    expected = 0.0
    for source, target in pairs:
        memory = model.encode(torch.tensor([[*source, 2]])).memory_BSD
        labels = torch.tensor([[*target, 2]])
        hidden = model.decode(torch.tensor([[1, *target]]), memory).hidden_BTD
        expected += float(cross_entropy(hidden, model.output.weight, labels, labels >= 0).nll)
    rows = pack(np.array([(len(source) + 1, len(target) + 1) for source, target in pairs]), CAPACITY)
    batch = collate_packed_pairs(
        [[(int(number), *pairs[number]) for number in row] for row in rows], CAPACITY, pad_id=0, bos_id=1, eos_id=2
    )
    sources, targets = batch.source_segments_BS, batch.target_segments_BT
    memory = model.encode(batch.source_BS, segments_BS=sources).memory_BSD
    decoded = model.decode(batch.target_BT, memory, source_segments_BS=sources, target_segments_BT=targets)
    packed = cross_entropy(decoded.hidden_BTD, model.output.weight, batch.labels_BT, batch.scored_BT)
    assert float(packed.nll) == pytest.approx(expected, rel=1e-10)
    assert int(packed.num_tokens) == sum(len(target) + 1 for _, target in pairs)


@given(
    st.lists(st.lists(st.integers(3, VOCAB - 1), min_size=2, max_size=3 * CAPACITY), min_size=1, max_size=8),
    positions,
    st.sampled_from([None, 1, 3]),
    st.integers(0, 99),
)
@few
def test_packed_documents_have_the_loss_of_their_pieces_alone(
    documents: list[list[int]], position: str, window: int | None, seed: int
) -> None:
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "max_length": CAPACITY, "position": position, "dropout": 0.0}
    torch.manual_seed(seed)
    plain = {"name": "decoder_only", "num_layers": 2, **sizes, "init_std": 0.3, "sliding_window": window}
    model = DecoderOnly(DecoderOnlyConfig.from_plain(plain), VOCAB)
    cut = split_long(np.array([len(document) for document in documents]), CAPACITY)
    pieces = [
        documents[document][start : start + length]
        for document, start, length in zip(*(column.tolist() for column in cut), strict=True)
    ]
    expected = 0.0
    for piece in pieces:
        labels = torch.tensor([piece[1:]])
        hidden = model.hidden(torch.tensor([piece[:-1]])).hidden_BLD
        expected += float(cross_entropy(hidden, model.output.weight, labels, labels >= 0).nll)
    rows = pack(cut.length_P[:, None] - 1, CAPACITY)
    batch = collate_packed_texts(
        [[(int(number), pieces[number]) for number in row] for row in rows], CAPACITY, pad_id=0
    )
    hidden = model.hidden(batch.tokens_BL, segments_BL=batch.segments_BL).hidden_BLD
    packed = cross_entropy(hidden, model.output.weight, batch.labels_BL, batch.scored_BL)
    assert float(packed.nll) == pytest.approx(expected, rel=1e-10)
    assert int(packed.num_tokens) == sum(len(document) - 1 for document in documents)
