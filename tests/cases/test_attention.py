"""Reported faults of attention and masks, by the id of their case."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.attention import attention
from transformer.nn.cache import DecoderCache, KeyValueCache
from transformer.nn.multihead import SelfAttention
from transformer.nn.positions import SinusoidalPosition, place_tokens, positions_of

BACKENDS = pytest.mark.parametrize("backend", ["fused", "explicit"])
PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])


def _uniform(values: list[float], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys of zeros: each output is the mean of the values that its row may see."""
    value = torch.tensor(values, dtype=dtype).view(1, 1, -1, 1)
    return torch.zeros_like(value), torch.zeros_like(value), value


def _uniform_module(dropout: float = 0.0) -> SelfAttention:
    """One head of width 1, query and key projections zero, value and output projections the identity."""
    module = SelfAttention(1, 1, 1, bias=True, qk_norm=False, dropout=dropout).double().eval()
    with torch.no_grad():
        module.query_key_value.weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
        module.output.weight.fill_(1.0)
        module.query_key_value.bias.zero_()
        module.output.bias.zero_()
    return module


# ATT-01: a row with no visible key. Window mask (itself and one before) and padding of keys 2 and 3.
ALLOWED = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)[None, None]


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_ATT_01_a_row_without_keys_stays_finite_forward_and_backward(backend, dtype):
    query, key, value = _uniform([10, 20, 30, 40], dtype)
    value.requires_grad_()
    output = attention(query, key, value, mask=ALLOWED, backend=backend).output.flatten()
    assert output.tolist() == [10.0, 15.0, 20.0, 0.0]
    (output[0] + output[1]).backward()
    assert value.grad.flatten().tolist() == [1.5, 0.5, 0.0, 0.0]


def test_ATT_01_the_faulty_fills_give_nan_or_a_mean_over_padding():
    _, _, value = _uniform([10, 20, 30, 40])
    value.requires_grad_()
    scores = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    output = (scores.masked_fill(~ALLOWED, -math.inf).softmax(-1) @ value).flatten()
    (output[0] + output[1]).backward()
    assert output[3].isnan()
    assert value.grad.isnan().all()
    finite = scores.masked_fill(~ALLOWED, -1e9).softmax(-1) @ value
    assert finite.flatten().tolist() == [10.0, 15.0, 20.0, 25.0]


# ATT-02: causal mask with more keys than queries.


@BACKENDS
@pytest.mark.parametrize("parts", [[5], [3, 2], [4, 1], [1, 1, 1, 1, 1]])
def test_ATT_02_chunks_over_a_cache_see_every_earlier_key(backend, parts):
    module, cache = _uniform_module(), KeyValueCache()
    x = torch.arange(5, dtype=torch.float64).view(1, 5, 1)
    outputs = [module(chunk, causal=True, cache=cache, backend=backend).output for chunk in x.split(parts, dim=1)]
    assert torch.cat(outputs, 1).flatten().tolist() == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0], abs=1e-12)
    if parts == [3, 2]:
        assert outputs[1].flatten().tolist() == pytest.approx([1.5, 2.0], abs=1e-12)
    if parts == [4, 1]:
        assert outputs[1].item() == pytest.approx(2.0, abs=1e-12)


def test_ATT_02_top_left_alignment_sees_the_oldest_keys_only():
    query, key, value = _uniform([0, 1, 2, 3, 4])
    for chunk, expected in [(2, [0.0, 0.5]), (1, [0.0])]:
        top_left = torch.ones(chunk, 5, dtype=torch.bool).tril()
        faulty = F.scaled_dot_product_attention(query[:, :, -chunk:], key, value, attn_mask=top_left)
        assert faulty.flatten().tolist() == expected


# ATT-04: left padding and positions. Prompts [5, 6] and [5, 6, 7, 8] in one batch, pad 0.
PROMPTS = torch.tensor([[0, 0, 5, 6], [5, 6, 7, 8]])
REAL = torch.tensor([[False, False, True, True], [True, True, True, True]])


def _language_model(dtype: torch.dtype, position: str = "learned") -> DecoderOnly:
    torch.manual_seed(0)
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=2, d_model=16, num_heads=2, max_length=8, position=position, init_std=0.5
    )
    return DecoderOnly(config, vocab_size=12).to(dtype).eval()


def test_ATT_04_positions_start_at_the_first_real_token():
    assert positions_of(REAL).masked_fill(~REAL, -1).tolist() == [[-1, -1, 0, 1], [0, 1, 2, 3]]
    cache, steps = DecoderCache(1), []
    place_tokens(torch.zeros(2, 4, dtype=torch.long), REAL, cache, 9)
    for _ in range(3):
        placement = place_tokens(torch.zeros(2, 1, dtype=torch.long), None, cache, 9)
        steps.append(placement.query_positions_BQ.flatten().tolist())
    assert list(zip(*steps, strict=True)) == [(2, 3, 4), (4, 5, 6)]


@PRECISIONS
@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi"])
@pytest.mark.parametrize("cached", [True, False])
def test_ATT_04_a_padded_prompt_is_continued_as_if_alone(dtype, tolerance, position, cached):
    model = _language_model(dtype, position)
    tokens, real, cache = PROMPTS, REAL, model.new_cache() if cached else None
    alone = [PROMPTS[0:1, 2:], PROMPTS[1:2]]
    new_tokens, new_real = tokens, real
    with torch.no_grad():
        for _ in range(4):  # the prompt and three new tokens
            logits = model.next_logits(new_tokens, new_real, cache=cache)
            chosen = logits.argmax(-1)
            for row in range(2):
                expected = model.next_logits(alone[row])[0]  # without padding and without a cache
                assert (logits[row] - expected).abs().max() < tolerance
                assert chosen[row] == expected.argmax()
                alone[row] = torch.cat([alone[row], chosen[row].view(1, 1)], 1)
            tokens = torch.cat([tokens, chosen[:, None]], 1)
            real = torch.cat([real, torch.ones(2, 1, dtype=torch.bool)], 1)
            # With a cache, later calls may leave the mask out: new tokens are real.
            new_tokens, new_real = (chosen[:, None], None) if cached else (tokens, real)


def test_ATT_04_counting_padding_as_positions_gives_other_logits():
    model = _language_model(torch.float64)
    right = model.next_logits(PROMPTS, REAL)[0]
    faulty = model.next_logits(PROMPTS)[0]
    assert (right - faulty).abs().max() > 1e-2
    # Even with the padded keys hidden, positions 2 and 3 instead of 0 and 1 are enough.
    shifted = _language_model(torch.float64)
    with torch.no_grad():
        shifted.position.embedding.weight[:2] = shifted.position.embedding.weight[2:4].clone()
    assert (right - shifted.next_logits(PROMPTS, REAL)[0]).abs().max() > 1e-2


# ATT-06: dropout alive in evaluation.


@BACKENDS
def test_ATT_06_attention_dropout_is_off_in_evaluation(backend):
    module, x = _uniform_module(dropout=0.5), torch.arange(4, dtype=torch.float64).view(1, 4, 1)
    assert {module(x, backend=backend).output[0, -1].item() for _ in range(10)} == {1.5}
    module.train()
    torch.manual_seed(0)
    seen = {module(x, backend=backend).output[0, -1].item() for _ in range(50)}
    assert len(seen) > 3  # what a dropout that ignores the mode would show


def test_ATT_06_a_model_with_every_dropout_repeats_itself_in_evaluation():
    torch.manual_seed(0)
    config = EncoderDecoderConfig(
        name="encoder_decoder",
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=16,
        num_heads=2,
        max_length=8,
        dropout=0.5,
        attention_dropout=0.5,
        activation_dropout=0.5,
    )
    model = EncoderDecoder(config, 12, 12).eval()
    source, target = torch.randint(12, (2, 7)), torch.randint(12, (2, 5))
    first = model(source, target)
    assert all(torch.equal(model(source, target), first) for _ in range(9))


# ATT-07: mask constants in half precision. Scores 1, 2, -3 with the third key masked.
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])


@HALF
@BACKENDS
@pytest.mark.parametrize("masks", [1, 2])
def test_ATT_07_masked_weights_are_exactly_zero_in_any_precision(dtype, backend, masks):
    query = torch.ones(1, 1, 1, 1, dtype=dtype)
    key = torch.tensor([1.0, 2.0, -3.0], dtype=dtype).view(1, 1, 3, 1)
    value = torch.eye(3, dtype=dtype)[None, None]  # the output is the row of weights
    mask = torch.tensor([True, True, False]).view(1, 1, 1, 3)
    if masks == 2:  # padding and a window hit the same key
        mask = mask & torch.tensor([True, True, False]).view(1, 1, 1, 3)
    weights = attention(query, key, value, mask=mask, backend=backend).output.flatten()
    assert weights.dtype == dtype
    assert weights[:2].tolist() == pytest.approx([0.2689, 0.7311], abs=2e-3 if dtype == torch.bfloat16 else 2e-4)
    assert weights[2] == 0


def test_ATT_07_hard_coded_constants_do_not_fit_sixteen_bits():
    scores = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float16)
    with pytest.raises(RuntimeError, match="cannot be converted"):
        scores.masked_fill(torch.tensor([False, False, True]), -1e9)
    assert (scores[2] + torch.tensor(-6e4, dtype=torch.float16) * 2).item() == -math.inf


# ATT-09: odd widths, width 1, heads that do not divide.


@pytest.mark.parametrize(
    ("width", "expected"),
    [(5, [0.14112, -0.989992, 0.075285, 0.997162, 0.001893]), (2, [0.14112, -0.989992]), (1, [0.14112])],
)
def test_ATT_09_sinusoids_of_odd_and_tiny_widths(width, expected):
    embedded = SinusoidalPosition(8, width).embed(torch.zeros(1, 1, width), torch.tensor([[3]]))
    assert embedded.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_ATT_09_heads_that_do_not_divide_are_refused_when_the_settings_are_read():
    def read(d_model: int, num_heads: int) -> DecoderOnlyConfig:
        return DecoderOnlyConfig.from_plain(
            {"name": "decoder_only", "num_layers": 1, "max_length": 8, "d_model": d_model, "num_heads": num_heads}
        )

    with pytest.raises(ValueError, match=r"`num_heads` must divide `d_model` \(10\), but is 3\."):
        read(10, 3)
    with pytest.raises(ValueError, match=r"`num_heads` must be at least 1 and divide `d_model` \(8\), but is 0\."):
        read(8, 0)
    assert read(1, 1).head_size == 1


@pytest.mark.parametrize(("d_model", "num_heads"), [(1, 1), (5, 1), (9, 3)])
def test_ATT_09_odd_widths_train(d_model, num_heads):
    torch.manual_seed(0)
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=1, d_model=d_model, num_heads=num_heads, max_length=8, dropout=0.0
    )
    model = DecoderOnly(config, vocab_size=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    tokens, labels = torch.tensor([[0, 1, 0, 1, 0]]), torch.tensor([[1, 0, 1, 0, 1]])
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < 0.9 * losses[0]
