"""Models and training (D1-D5): information flow, the shift, the loss, and stepwise decoding."""

import math
from collections.abc import Callable
from itertools import combinations, pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.data.batches.collate import collate_translation, shift_targets
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.attention import Backend
from transformer.nn.cache import DecoderCache
from transformer.nn.loss import cross_entropy
from transformer.nn.multihead import CrossAttention

BACKENDS: tuple[Backend, ...] = ("fused", "explicit")
both_backends = pytest.mark.parametrize("backend", BACKENDS)
every_position = pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
STACK = {"d_model": 16, "num_heads": 2, "max_length": 12, "dropout": 0.0}


def language_model(vocab_size: int = 11, **settings: object) -> DecoderOnly:
    data = {"name": "decoder_only", "num_layers": 2, "init_std": 0.2, **STACK, **settings}
    return DecoderOnly(DecoderOnlyConfig.from_plain(data), vocab_size).eval()


def translation_model(vocab_size: int = 11, **settings: object) -> EncoderDecoder:
    data = {"name": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 2, **STACK, **settings}
    return EncoderDecoder(EncoderDecoderConfig.from_plain(data), vocab_size, vocab_size).eval()


def leak(run: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    """The most that changing one position changes any output before it, over every position in turn."""
    output, worst = run(ids), 0.0
    for position in range(1, ids.shape[1]):
        changed = ids.clone()
        changed[:, position] = (ids[:, position] + 1) % 11
        worst = max(worst, (run(changed) - output)[:, :position].abs().max().item())
    return worst


@both_backends
def test_d01_cross_attention_sources(backend: Backend) -> None:
    module = CrossAttention(16, 2, 2, bias=True, qk_norm=False, dropout=0.0)
    target, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    query = module.query(target)
    key, value = module.key_value(memory).split(16, dim=-1)
    heads = []
    for part in (slice(0, 8), slice(8, 16)):
        scores = query[..., part] @ key[..., part].mT / math.sqrt(8)
        heads.append(scores.softmax(-1) @ value[..., part])
    output, weights = module(target, memory, backend=backend)
    assert (output - module.output(torch.cat(heads, dim=-1))).abs().max() < 1e-12
    assert weights is None or weights.shape == (2, 2, 3, 5)


def test_d01_cross_attention_weights_of_the_model() -> None:
    model, source, target = translation_model(), torch.randint(0, 11, (2, 5)), torch.randint(0, 11, (2, 3))
    decoded = model.decode(target, model.encode(source).memory_BSD, backend="explicit")
    assert [w.shape for w in decoded.cross_weights if w is not None] == [(2, 2, 3, 5)] * 2
    assert [w.shape for w in decoded.self_weights if w is not None] == [(2, 2, 3, 3)] * 2


@every_position
def test_d02_counterexample_one_sequence_in_encoder_and_decoder(position: str) -> None:
    model, ids, source = (
        translation_model(position=position),
        torch.randint(0, 11, (2, 6)),
        torch.tensor([[1, 2]] * 2),
    )
    assert leak(lambda ids: model(ids, ids), ids) > 1e-3
    assert leak(lambda ids: model(source, ids), ids) < 1e-12
    assert leak(language_model(position=position), ids) < 1e-12


def test_d03_shift_of_literal_ids() -> None:
    a, b, bos, eos = 5, 6, 1, 2
    assert shift_targets([a, b], bos_id=bos, eos_id=eos) == ([bos, a, b], [a, b, eos])
    assert shift_targets([], bos_id=bos, eos_id=eos) == ([bos], [eos])
    batch = collate_translation([(0, [7], [a, b]), (1, [7, 8], [a])], pad_id=0, bos_id=bos, eos_id=eos)
    assert batch.target_BT.tolist() == [[bos, a, b], [bos, a, 0]]
    assert batch.labels_BT.tolist() == [[a, b, eos], [a, eos, 0]]
    assert batch.scored_BT.tolist() == [[True, True, True], [True, True, False]]


def test_d03_no_label_is_seen_where_it_is_predicted() -> None:
    model, source, targets = translation_model(), torch.tensor([[3, 4, 2]]), [5, 6, 7, 8]

    def logits(ids: list[int], shifted: bool) -> Tensor:
        inputs, labels = shift_targets(ids, bos_id=1, eos_id=2)
        return model(source, torch.tensor([inputs if shifted else labels]))[0]

    for place in range(4):
        changed = targets.copy()
        changed[place] = 9
        difference = (logits(changed, True) - logits(targets, True)).abs().amax(-1)
        assert difference[: place + 1].max() < 1e-12
        assert difference[place + 1] > 1e-6
        # Counterexample: without the shift, the model reads each label where it is to predict it.
        assert (logits(changed, False) - logits(targets, False)).abs().amax(-1)[place] > 1e-6


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("filler", [2, 0, -100], ids=["pad is eos", "own pad", "ignore label"])
def test_d04_loss_equals_a_loop_over_unpadded_examples(smoothing: float, filler: int) -> None:
    eos, lengths = 2, [1, 4, 3]
    hidden, weight = torch.randn(3, 4, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    labels, scored = torch.full((3, 4), filler), torch.zeros(3, 4, dtype=torch.bool)
    for row, length in enumerate(lengths):
        labels[row, :length] = torch.tensor([*range(3, 2 + length), eos])
        scored[row, :length] = True
    sums = cross_entropy(hidden, weight, labels, scored, label_smoothing=smoothing, chunk_elements=22)
    gradients = torch.autograd.grad(sums.loss, (hidden, weight))

    loss, nll = torch.zeros(()), torch.zeros(())
    for row, length in enumerate(lengths):
        logits, right = hidden[row, :length] @ weight.T, labels[row, :length]
        loss = loss + F.cross_entropy(logits, right, label_smoothing=smoothing, reduction="sum")
        nll = nll - logits.log_softmax(-1).gather(1, right[:, None]).sum()
    expected_gradients = torch.autograd.grad(loss, (hidden, weight))
    assert sums.num_tokens.item() == 8
    assert (sums.loss - loss).abs() < 1e-12
    assert (sums.nll - nll).abs() < 1e-12
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        assert (gradient - expected).abs().max() < 1e-12
    assert gradients[0][~scored].count_nonzero() == 0


def test_d04_counterexample_ignoring_an_id_and_a_mean_over_everything() -> None:
    eos = pad = 2
    hidden, weight = torch.randn(2, 3, 8), torch.randn(11, 8)
    labels = torch.tensor([[5, 6, eos], [7, eos, pad]])
    scored = torch.tensor([[True, True, True], [True, True, False]])
    right = cross_entropy(hidden, weight, labels, scored)
    logits = (hidden @ weight.T).flatten(0, 1)
    assert F.cross_entropy(logits[:5], labels.flatten()[:5]).item() == pytest.approx(right.loss.item() / 5, abs=1e-12)
    by_id = F.cross_entropy(logits, labels.flatten(), ignore_index=pad)  # loses every end token
    over_all = F.cross_entropy(logits, labels.flatten())  # scores the padding
    assert abs(by_id - right.loss / right.num_tokens) > 0.05
    assert abs(over_all - right.loss / right.num_tokens) > 0.05


LENGTH = 5
BOUNDARIES = [cuts for count in range(LENGTH) for cuts in combinations(range(1, LENGTH), count)]
SPLITS = [[end - start for start, end in pairwise((0, *cuts, LENGTH))] for cuts in BOUNDARIES]


def in_chunks(step: Callable[[Tensor, Tensor | None], Tensor], ids: Tensor, mask: Tensor, split: list[int]) -> Tensor:
    """Outputs over consecutive chunks; a chunk of real tokens only goes without its mask."""
    outputs = []
    for tokens, real in zip(ids.split(split, dim=1), mask.split(split, dim=1), strict=True):
        outputs.append(step(tokens, None if real.all() else real))
    return torch.cat(outputs, dim=1)


def left_padded_mask() -> Tensor:
    """Rows of 5, 4 and 3 real tokens at the end."""
    return torch.arange(LENGTH)[None] >= torch.arange(3)[:, None]


def test_d05_every_split_is_tried() -> None:
    assert sorted(map(tuple, SPLITS))[0] == (1, 1, 1, 1, 1)
    assert len(set(map(tuple, SPLITS))) == 16
    assert all(sum(split) == LENGTH for split in SPLITS)


@both_backends
@every_position
@pytest.mark.parametrize("padded", [False, True], ids=["full", "left padded"])
def test_d05_language_model_parallel_equals_stepwise(position: str, backend: Backend, padded: bool) -> None:
    ids = torch.randint(0, 11, (3, LENGTH))
    mask = left_padded_mask() if padded else torch.ones(3, LENGTH, dtype=torch.bool)
    settings = {"num_kv_heads": 1, "sliding_window": 4} if position == "rotary" else {}
    model = language_model(position=position, **settings)

    def logits(tokens: Tensor, real: Tensor | None, cache: DecoderCache | None = None) -> Tensor:
        return model.output(model.hidden(tokens, real, cache=cache, backend=backend).hidden_BLD)

    parallel = logits(ids, mask if padded else None)
    for split in SPLITS:
        cache = model.new_cache()
        stepwise = in_chunks(lambda t, r, cache=cache: logits(t, r, cache), ids, mask, split)  # type: ignore[misc]
        assert (stepwise - parallel)[mask].abs().max() < 1e-10
    for length in range(1, LENGTH + 1):  # without a cache: the last output of every prefix
        last = logits(ids[:, :length], mask[:, :length] if padded else None)[:, -1]
        real = mask[:, length - 1]
        assert (last - parallel[:, length - 1])[real].abs().max() < 1e-10


@both_backends
@every_position
@pytest.mark.parametrize("padded", [False, True], ids=["full", "left padded"])
def test_d05_translation_parallel_equals_stepwise(position: str, backend: Backend, padded: bool) -> None:
    ids, source = torch.randint(0, 11, (3, LENGTH)), torch.randint(0, 11, (3, 4))
    mask = left_padded_mask() if padded else torch.ones(3, LENGTH, dtype=torch.bool)
    source_mask = torch.tensor([[True] * 4, [True, True, False, False], [False, True, True, True]])
    model = translation_model(position=position)
    memory = model.encode(source, source_mask, backend=backend).memory_BSD

    def logits(tokens: Tensor, real: Tensor | None, cache: DecoderCache | None = None) -> Tensor:
        return model.output(model.decode(tokens, memory, source_mask, real, cache=cache, backend=backend).hidden_BTD)

    parallel = model(source, ids, source_mask, mask if padded else None)
    for split in SPLITS:
        cache = model.new_cache()
        stepwise = in_chunks(lambda t, r, cache=cache: logits(t, r, cache), ids, mask, split)  # type: ignore[misc]
        assert (stepwise - parallel)[mask].abs().max() < 1e-10
    for length in range(1, LENGTH + 1):
        last = logits(ids[:, :length], mask[:, :length] if padded else None)[:, -1]
        real = mask[:, length - 1]
        assert (last - parallel[:, length - 1])[real].abs().max() < 1e-10
