"""Packed rows: examples that share a row are read, scored and learnt from as if each were alone."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.data.batches.packing import collate_packed_pairs, collate_packed_texts
from transformer.models import decoder_only, encoder_decoder
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.attention import Backend
from transformer.nn.loss import LossSum, cross_entropy

VOCAB, LONGEST, WIDTH = 13, 8, 20  # rows are longer than the models' max_length
POSITION_NAMES = ("sinusoidal", "learned", "rotary", "alibi", "none")
POSITIONS = pytest.mark.parametrize("position", POSITION_NAMES)
BACKENDS = pytest.mark.parametrize("backend", ["fused", "explicit"])
VARIANTS = {
    "pre": {"norm_position": "pre"},
    "post": {"norm_position": "post"},
    "llama": {"num_kv_heads": 2, "qk_norm": True, "activation": "swiglu", "norm": "rms_norm", "bias": False},
    "gqa post": {"num_kv_heads": 1, "qk_norm": True, "activation": "gelu", "norm_position": "post"},
}


def _settings(**changes: object) -> dict[str, object]:
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 12, "max_length": LONGEST, "dropout": 0.0}
    return {**sizes, "initialization": "normal", "init_std": 0.3, **changes}


def _translation(**changes: object) -> EncoderDecoder:
    torch.manual_seed(1)
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2, "tie_embeddings": "none"}
    config = EncoderDecoderConfig.from_plain({"name": "encoder_decoder", **layers, **_settings(**changes)})
    return EncoderDecoder(config, VOCAB, VOCAB).double()


def _language_model(**changes: object) -> DecoderOnly:
    torch.manual_seed(1)
    config = DecoderOnlyConfig.from_plain({"name": "decoder_only", "num_layers": 2, **_settings(**changes)})
    return DecoderOnly(config, VOCAB).double()


def _ids(generator: np.random.Generator, length: int) -> list[int]:
    return [int(token) for token in generator.integers(3, VOCAB, size=length)]


def _pairs(lengths: list[tuple[int, int]]) -> list[tuple[int, list[int], list[int]]]:
    generator = np.random.default_rng(0)
    return [(index, _ids(generator, source), _ids(generator, target)) for index, (source, target) in enumerate(lengths)]


def _texts(lengths: list[int]) -> list[tuple[int, list[int]]]:
    generator = np.random.default_rng(0)
    return [(index, _ids(generator, length)) for index, length in enumerate(lengths)]


# Rows of one, two and several examples; the longest allowed ones; an empty source and an empty target; a row that one
# side fills to the last place while the other does not.
PAIRS = _pairs([(7, 7), (0, 4), (5, 0), (3, 2), (1, 1), (6, 7), (7, 3), (3, 7)])
PAIR_ROWS = [PAIRS[0:1], PAIRS[1:5], PAIRS[5:8]]
TEXTS = _texts([9, 2, 3, 9, 4, 6, 9, 6])
TEXT_ROWS = [TEXTS[0:1], TEXTS[1:5], TEXTS[5:8]]


def _packed_pairs() -> TranslationBatch:
    return collate_packed_pairs(PAIR_ROWS, WIDTH, pad_id=0, bos_id=1, eos_id=2)


def _packed_texts() -> TextBatch:
    return collate_packed_texts(TEXT_ROWS, WIDTH, pad_id=0)


class Outcome(NamedTuple):
    """Summed loss, its parts, and the gradient of every parameter."""

    loss: Tensor
    nll: Tensor
    num_tokens: int
    gradients: dict[str, Tensor]


def _outcome(model: torch.nn.Module, sums: LossSum) -> Outcome:
    model.zero_grad(set_to_none=True)
    sums.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return Outcome(sums.loss.detach(), sums.nll, int(sums.num_tokens), gradients)


def _score(model: EncoderDecoder | DecoderOnly, hidden_BLD: Tensor, labels_BL: Tensor, scored_BL: Tensor) -> LossSum:
    return cross_entropy(hidden_BLD, model.output.weight, labels_BL, scored_BL, label_smoothing=0.1)


def _alone_pairs(model: EncoderDecoder, backend: Backend) -> Outcome:
    """Every pair in a batch of its own, without any padding, mask or segment."""
    sums = []
    for _, source, target in PAIRS:
        memory = model.encode(torch.tensor([[*source, 2]]), backend=backend).memory_BSD
        hidden = model.decode(torch.tensor([[1, *target]]), memory, backend=backend).hidden_BTD
        labels = torch.tensor([[*target, 2]])
        sums.append(_score(model, hidden, labels, torch.ones_like(labels, dtype=torch.bool)))
    return _outcome(model, LossSum(*(torch.stack(part).sum() for part in zip(*sums, strict=True))))


def _alone_texts(model: DecoderOnly, backend: Backend) -> Outcome:
    sums = []
    for _, ids in TEXTS:
        labels = torch.tensor([ids[1:]])
        hidden = model.hidden(torch.tensor([ids[:-1]]), backend=backend).hidden_BLD
        sums.append(_score(model, hidden, labels, torch.ones_like(labels, dtype=torch.bool)))
    return _outcome(model, LossSum(*(torch.stack(part).sum() for part in zip(*sums, strict=True))))


def _together_pairs(model: EncoderDecoder, backend: Backend) -> Outcome:
    batch = _packed_pairs()
    sources, targets = batch.source_segments_BS, batch.target_segments_BT
    memory = model.encode(batch.source_BS, segments_BS=sources, backend=backend).memory_BSD
    decoded = model.decode(
        batch.target_BT, memory, source_segments_BS=sources, target_segments_BT=targets, backend=backend
    )
    return _outcome(model, _score(model, decoded.hidden_BTD, batch.labels_BT, batch.scored_BT))


def _together_texts(model: DecoderOnly, backend: Backend) -> Outcome:
    batch = _packed_texts()
    hidden = model.hidden(batch.tokens_BL, segments_BL=batch.segments_BL, backend=backend).hidden_BLD
    return _outcome(model, _score(model, hidden, batch.labels_BL, batch.scored_BL))


def _deviation(actual: Outcome, expected: Outcome) -> float:
    """The greatest relative difference, of the loss or of any parameter's gradient."""
    assert actual.num_tokens == expected.num_tokens
    pairs = [(actual.loss, expected.loss), (actual.nll, expected.nll)]
    pairs += [(actual.gradients[name], gradient) for name, gradient in expected.gradients.items()]
    assert all(float(gradient.norm()) > 1e-3 for _, gradient in pairs)
    return max(float((one - other).norm() / other.norm()) for one, other in pairs)


@BACKENDS
@POSITIONS
@pytest.mark.parametrize("variant", VARIANTS)
def test_packed_pairs_equal_pairs_alone_in_loss_and_every_gradient(
    position: str, variant: str, backend: Backend
) -> None:
    model = _translation(position=position, **VARIANTS[variant])
    assert _deviation(_together_pairs(model, backend), _alone_pairs(model, backend)) < 1e-10


@BACKENDS
@POSITIONS
@pytest.mark.parametrize("variant", [*VARIANTS, "window"])
def test_packed_documents_equal_documents_alone_in_loss_and_every_gradient(
    position: str, variant: str, backend: Backend
) -> None:
    changes = {"sliding_window": 3} if variant == "window" else VARIANTS[variant]
    model = _language_model(position=position, **changes)
    assert _deviation(_together_texts(model, backend), _alone_texts(model, backend)) < 1e-10


Mask = Callable[[Tensor, Tensor], Tensor]


def _padding_only(query_segments_BQ: Tensor, key_segments_BK: Tensor) -> Tensor:
    """A faulty mask: hides padding, but not one example from another."""
    return ((query_segments_BQ > 0)[:, :, None] & (key_segments_BK > 0)[:, None, :])[:, None]


def _faulty_where(is_faulty: Callable[[Tensor, Tensor], bool], right: Mask) -> Mask:
    return lambda query, key: (_padding_only if is_faulty(query, key) else right)(query, key)


def _whole_row(tokens_BL: Tensor, segments_BL: Tensor, *_: object) -> Tensor:
    """Faulty positions: they go on through the whole row."""
    return torch.arange(tokens_BL.shape[1])[None].expand_as(tokens_BL)


@BACKENDS
@POSITIONS
@pytest.mark.parametrize("fault", ["self-attention", "cross-attention"])
def test_the_comparison_finds_pairs_that_see_each_other(
    position: str, fault: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _translation(position=position)

    def is_faulty(query: Tensor, key: Tensor) -> bool:
        return (query is key) == (fault == "self-attention")

    monkeypatch.setattr(encoder_decoder, "segment_mask", _faulty_where(is_faulty, encoder_decoder.segment_mask))
    assert _deviation(_together_pairs(model, backend), _alone_pairs(model, backend)) > 1e-3


@BACKENDS
@POSITIONS
def test_the_comparison_finds_documents_that_see_each_other(
    position: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _language_model(position=position)
    monkeypatch.setattr(decoder_only, "segment_mask", _padding_only)
    assert _deviation(_together_texts(model, backend), _alone_texts(model, backend)) > 1e-3


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_the_comparison_finds_absolute_positions_that_do_not_restart(
    position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    translation, language = (build(position=position, max_length=WIDTH) for build in (_translation, _language_model))
    alone = _alone_pairs(translation, "fused"), _alone_texts(language, "fused")
    for module in (encoder_decoder, decoder_only):
        monkeypatch.setattr(module, "place_segments", _whole_row)
    assert _deviation(_together_pairs(translation, "fused"), alone[0]) > 1e-3
    assert _deviation(_together_texts(language, "fused"), alone[1]) > 1e-3


@pytest.mark.parametrize("position", ["rotary", "alibi", "none"])
def test_relative_positions_only_need_the_distances_within_a_segment(
    position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _language_model(position=position, max_length=WIDTH)
    alone = _alone_texts(model, "fused")
    monkeypatch.setattr(decoder_only, "place_segments", _whole_row)
    assert _deviation(_together_texts(model, "fused"), alone) < 1e-6  # rotary tables are float32


def test_no_token_sees_padding_or_another_segment() -> None:
    batch = _packed_pairs()
    model = _translation()
    sources, targets = batch.source_segments_BS, batch.target_segments_BT
    assert sources is not None
    assert targets is not None
    encoded = model.encode(batch.source_BS, segments_BS=sources, backend="explicit")
    decoded = model.decode(
        batch.target_BT, encoded.memory_BSD, source_segments_BS=sources, target_segments_BT=targets, backend="explicit"
    )
    for weights, queries, keys, causal in (
        (encoded.weights, sources, sources, False),
        (decoded.self_weights, targets, targets, True),
        (decoded.cross_weights, targets, sources, False),
    ):
        for row in range(len(PAIR_ROWS)):
            expected = [
                [query == key != 0 and (not causal or place <= at) for place, key in enumerate(keys[row].tolist())]
                for at, query in enumerate(queries[row].tolist())
            ]
            for layer in weights:
                assert layer is not None
                assert all((head > 0).tolist() == expected for head in layer[row])


@BACKENDS
@POSITIONS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_padding_and_empty_rows_stay_finite_in_value_and_gradient(
    position: str, backend: Backend, dtype: torch.dtype
) -> None:
    translation, language = _translation(position=position).to(dtype), _language_model(position=position).to(dtype)
    tokens = torch.tensor([[3, 4, 5, 6, 0, 0], [0] * 6, [0, 7, 8, 0, 0, 0]])
    segments = torch.tensor([[1, 1, 2, 3, 0, 0], [0] * 6, [0, 1, 1, 0, 0, 0]])
    fewer = torch.tensor([[1, 1, 3, 3, 3, 0], [0] * 6, [0] * 6])  # target 2 and the last target have no source
    memory = translation.encode(tokens, segments_BS=fewer, backend=backend).memory_BSD
    decoded = translation.decode(tokens, memory, source_segments_BS=fewer, target_segments_BT=segments, backend=backend)
    hidden = language.hidden(tokens, segments_BL=segments, backend=backend).hidden_BLD
    for model, values in ((translation, decoded.hidden_BTD), (language, hidden)):
        assert values.dtype == dtype
        assert bool(values.isfinite().all())
        # Also where nothing is scored: every value has an influence on this sum.
        (_score(model, values, tokens, segments > 0).loss + values.float().square().mean()).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()), name


def test_rows_without_neighbours_equal_rows_with_a_mask() -> None:
    """A row may hold one example only, and begin with padding."""
    tokens = torch.tensor([[3, 4, 5, 0], [0, 0, 6, 7]])
    segments = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]])
    for position in POSITION_NAMES:
        model = _language_model(position=position)
        masked, packed = model.hidden(tokens, segments > 0), model.hidden(tokens, segments_BL=segments)
        assert (masked.hidden_BLD - packed.hidden_BLD)[segments > 0].abs().max() < 1e-12
