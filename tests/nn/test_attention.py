"""Scaled dot-product attention as a function."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.nn.attention import attention
from transformer.nn.multihead import merge_heads, split_heads
from transformer.nn.positions import AlibiPosition

BACKENDS = pytest.mark.parametrize("backend", ["fused", "explicit"])
BATCH, HEADS, QUERIES, KEYS, SIZE, VALUE_SIZE = 2, 6, 3, 5, 4, 7


def _inputs(key_heads: int = HEADS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query = torch.randn(BATCH, HEADS, QUERIES, SIZE, dtype=dtype)
    key = torch.randn(BATCH, key_heads, KEYS, SIZE, dtype=dtype)
    return query, key, torch.randn(BATCH, key_heads, KEYS, VALUE_SIZE, dtype=dtype)


def _by_hand(query, key, value, allowed, bias=None, scale=None) -> tuple[Tensor, Tensor]:
    """One query at a time in Python floats; `allowed(b, q, k)`: may the query attend to the key?"""
    outputs = torch.zeros(*query.shape[:3], value.shape[3], dtype=torch.float64)
    weights = torch.zeros(*query.shape[:3], key.shape[2], dtype=torch.float64)
    share = query.shape[1] // key.shape[1]
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    for b, h, q in [(b, h, q) for b in range(BATCH) for h in range(HEADS) for q in range(query.shape[2])]:
        seen = [k for k in range(key.shape[2]) if allowed(b, q, k)]
        scores = [
            scale * sum(x * y for x, y in zip(query[b, h, q].tolist(), key[b, h // share, k].tolist(), strict=True))
            + (0.0 if bias is None else bias[b, h, q, k].item())
            for k in seen
        ]
        total = sum(math.exp(score) for score in scores)
        for k, score in zip(seen, scores, strict=True):
            weights[b, h, q, k] = math.exp(score) / total
            outputs[b, h, q] += weights[b, h, q, k] * value[b, h // share, k]
    return outputs, weights


@BACKENDS
@pytest.mark.parametrize("key_heads", [6, 3, 2, 1])
def test_equals_one_query_at_a_time(backend, key_heads):
    query, key, value = _inputs(key_heads)
    expected, weights = _by_hand(query, key, value, lambda b, q, k: True)
    actual = attention(query, key, value, backend=backend)
    assert actual.output.shape == (2, 6, 3, 7)
    assert (actual.output - expected).abs().max() < 1e-12
    if backend == "explicit":
        assert actual.weights.shape == (2, 6, 3, 5)
        assert (actual.weights - weights).abs().max() < 1e-12
        assert (actual.weights.sum(-1) - 1).abs().max() < 1e-12  # over keys, not over queries
    else:
        assert actual.weights is None


@BACKENDS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [1, QUERIES])
def test_masks_causality_and_bias_combine(backend, causal, with_bias, rows):
    query, key, value = _inputs()
    mask = torch.rand(BATCH, 1, rows, KEYS) < 0.7
    mask[..., 0] = True
    bias = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64) if with_bias else None

    def allowed(b, q, k):
        return mask[b, 0, q % rows, k].item() and (not causal or k <= q + KEYS - QUERIES)

    expected, weights = _by_hand(query, key, value, allowed, bias, scale=0.3)
    actual = attention(query, key, value, mask=mask, causal=causal, bias=bias, scale=0.3, backend=backend)
    assert (actual.output - expected).abs().max() < 1e-12
    if backend == "explicit":
        assert torch.equal(actual.weights == 0, weights == 0)  # forbidden weights are exactly zero


def test_causality_is_aligned_with_the_last_query():
    query, key, value = _inputs()
    weights = attention(query, key, value, causal=True, backend="explicit").weights
    assert (weights > 0)[0, 0].tolist() == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]
    top_left = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()  # what torch's own is_causal means
    fused = attention(query, key, value, causal=True).output
    faulty = attention(query, key, value, mask=top_left[None, None]).output
    assert (fused - faulty).abs().max() > 0.1


@BACKENDS
def test_a_row_without_keys_is_zero_and_harms_no_gradient(backend):
    query, key, value = (x.requires_grad_() for x in _inputs())
    mask = torch.ones(BATCH, 1, QUERIES, KEYS, dtype=torch.bool)
    mask[1, 0, 2] = False
    output = attention(query, key, value, mask=mask, backend=backend).output
    assert output[1, :, 2].abs().max() == 0
    output.sum().backward()
    assert all(x.grad.isfinite().all() for x in (query, key, value))
    assert query.grad[1, :, 2].abs().max() == 0
    assert query.grad[1, :, 1].abs().min() > 0
    # The counterexample: after a fill with minus infinity, even a loss that skips the row gets NaN gradients.
    naive_value = value.detach().clone().requires_grad_()
    weights = (query.detach() @ key.detach().mT).masked_fill(~mask, -math.inf).softmax(-1)
    (weights @ naive_value)[1, :, :2].sum().backward()
    assert naive_value.grad[1].isnan().all()


@pytest.mark.parametrize("empty", [0, 1, QUERIES])
def test_no_kernel_is_asked_about_a_row_without_keys(empty, monkeypatch):
    """Some give NaN or a mean over the padding; the outputs of the one that runs here would not tell."""
    kernel, asked = F.scaled_dot_product_attention, []

    def record(*inputs, attn_mask, **settings):
        asked.append(attn_mask)
        return kernel(*inputs, attn_mask=attn_mask, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    mask = torch.rand(BATCH, 1, QUERIES, KEYS) < 0.7
    mask[..., 0] = True
    mask[1, 0, :empty] = False
    output = attention(*_inputs(), mask=mask).output
    assert asked[0].any(-1).all()
    assert not output[1, :, :empty].any()
    assert torch.equal(asked[0][0], mask[0])


@BACKENDS
def test_more_queries_than_keys_leave_the_first_queries_empty(backend):
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 5, 4, dtype=torch.float64), torch.randn(1, 1, 2, 4, dtype=torch.float64)
    output = attention(query, key, key, causal=True, backend=backend).output
    assert output[0, 0, :3].abs().max() == 0
    assert (output[0, 0, 3] - key[0, 0, 0]).abs().max() < 1e-12


@BACKENDS
def test_scores_of_ten_thousand_do_not_overflow(backend):
    query = torch.tensor([[[[1e4]]], [[[-1e4]]]])
    key = torch.tensor([[[[1.0], [-1.0]]]]).expand(2, 1, 2, 1)
    output = attention(query, key, torch.tensor([[[[3.0], [8.0]]]]).expand(2, 1, 2, 1), backend=backend).output
    assert output.flatten().tolist() == [3.0, 8.0]


@BACKENDS
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_half_precision_stays_close_and_keeps_its_dtype(backend, dtype, tolerance):
    query, key, value = _inputs(dtype=dtype)
    bias = torch.full((1, 1, QUERIES, KEYS), 300.0) + torch.arange(KEYS) * 0.25  # 16 bits round sums here
    exact = (x.double() for x in (query, key, value))
    expected, _ = _by_hand(*exact, lambda b, q, k: True, bias.double().expand(BATCH, HEADS, -1, -1))
    output = attention(query, key, value, bias=bias, backend=backend).output
    assert output.dtype == dtype
    assert (output.double() - expected).abs().max() < 4 * tolerance


@BACKENDS
def test_distances_survive_autocast_of_float32_queries_to_bfloat16(backend):
    """Keys 300 to 315 positions back: bfloat16 knows no odd numbers up there, so neighbours would weigh the same."""
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 16, 8), torch.randn(1, 2, 16, 8)
    bias = AlibiPosition(2).signals(torch.tensor([[315]]), torch.arange(16)[None]).bias_BHQK * 16  # slopes 1 and 1/16
    exact = attention(query, key, value, bias=bias).output
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attention(query, key, value, bias=bias, backend=backend).output
    coarse = attention(query, key, value, bias=bias.bfloat16().float()).output
    assert (coarse - exact).abs().max() > 0.2
    assert (rounded.float() - exact).abs().max() < 0.03


def test_float64_is_not_cast_to_float32_on_the_way():
    query, key, value = _inputs()
    expected, _ = _by_hand(query, key, value, lambda b, q, k: True)
    faulty = (query @ key.mT / 2).float().softmax(-1).double() @ value
    assert (faulty - expected).abs().max() > 1e-9
    assert (attention(query, key, value, backend="explicit").output - expected).abs().max() < 1e-12


@BACKENDS
def test_dropout_keeps_the_mean_and_is_off_by_default(backend):
    torch.manual_seed(0)
    query, value = torch.zeros(1, 1, 2000, 2), torch.ones(1, 1, 16, 3)
    key = torch.zeros(1, 1, 16, 2)
    dropped = attention(query, key, value, dropout=0.25, backend=backend).output[..., 0]
    # Each output is a mean of 16 kept-or-dropped ones: variance p / (1 - p) / 16, mean 1.
    assert abs(dropped.mean().item() - 1) < 5 * math.sqrt(0.25 / 0.75 / 16 / 2000)
    assert dropped.var().item() == pytest.approx(0.25 / 0.75 / 16, rel=0.2)
    assert attention(query, key, value, backend=backend).output.unique().tolist() == [1.0]


def test_refuses_lengths_heads_and_masks_that_do_not_fit():
    query, key, value = _inputs()
    fitting = torch.ones(BATCH, 1, 1, KEYS, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"there are 5 keys and 6 values"):
        attention(query, key, torch.zeros(BATCH, HEADS, 6, SIZE))
    with pytest.raises(ValueError, match=r"queries have head size 4, but keys have 7"):
        attention(query, value, value)
    with pytest.raises(ValueError, match=r"divide the query heads \(6\), but they are 4 and 4"):
        attention(query, key[:, :4], value[:, :4])
    with pytest.raises(ValueError, match=r"divide the query heads \(6\), but they are 3 and 6"):
        attention(query, key[:, :3], value)
    with pytest.raises(ValueError, match=r"must be bool \(True = may attend\), but is torch.float64"):
        attention(query, key, value, mask=fitting.double())
    wrong_masks = [
        fitting[..., :4],
        fitting[:, 0],
        fitting.expand(-1, -1, 2, -1),
        fitting.expand(-1, 6, -1, -1),
        fitting.repeat(2, 1, 1, 1),
    ]
    for wrong in wrong_masks:
        with pytest.raises(ValueError, match=r"must have shape \(2, 1, 1, 5\) or \(2, 1, 3, 5\)"):
            attention(query, key, value, mask=wrong)


def test_split_heads_keeps_time_apart_from_heads():
    x = torch.arange(24.0).view(1, 4, 6)
    assert split_heads(x, 3)[0].tolist() == [
        [[0, 1], [6, 7], [12, 13], [18, 19]],
        [[2, 3], [8, 9], [14, 15], [20, 21]],
        [[4, 5], [10, 11], [16, 17], [22, 23]],
    ]
    assert torch.equal(merge_heads(split_heads(x, 3)), x)
    assert not torch.equal(x.view(1, 3, 4, 2), split_heads(x, 3))  # the direct reshape mixes the two
