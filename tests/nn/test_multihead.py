"""Multi-head self- and cross-attention: projections, head sharing, caches, rotation."""

import math

import pytest
import torch
from torch import Tensor

from transformer.nn.cache import KeyValueCache
from transformer.nn.memory import MemoryCache, SharedMemories
from transformer.nn.multihead import CrossAttention, SelfAttention, split_heads
from transformer.nn.positions import PositionSignals, RotaryPosition, Rotation

BACKENDS = pytest.mark.parametrize("backend", ["fused", "explicit"])


def _self_attention(**changes) -> SelfAttention:
    torch.manual_seed(1)
    settings = {"bias": True, "qk_norm": False, "dropout": 0.0} | changes
    return SelfAttention(12, 6, settings.pop("num_kv_heads", 2), **settings).double().eval()


def test_self_attention_equals_separate_projections():
    module = _self_attention(qk_norm=True)
    with torch.no_grad():
        module.query_norm.weight.uniform_(0.5, 1.5)
        module.key_norm.weight.uniform_(0.5, 1.5)
    x = torch.randn(3, 5, 12, dtype=torch.float64)
    q_weight, k_weight, v_weight = module.query_key_value.weight.split([12, 4, 4])
    q_bias, k_bias, v_bias = module.query_key_value.bias.split([12, 4, 4])

    def normalised(heads: Tensor, weight: Tensor) -> Tensor:
        return heads / (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    outputs = []
    for head in range(6):  # head size 2; heads 0-2 share key head 0, heads 3-5 key head 1
        own, shared = slice(2 * head, 2 * head + 2), slice(2 * (head // 3), 2 * (head // 3) + 2)
        q = normalised(x @ q_weight[own].T + q_bias[own], module.query_norm.weight)
        k = normalised(x @ k_weight[shared].T + k_bias[shared], module.key_norm.weight)
        v = x @ v_weight[shared].T + v_bias[shared]
        scores = (q @ k.mT / math.sqrt(2)).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        outputs.append(scores.softmax(-1) @ v)
    expected = torch.cat(outputs, dim=-1) @ module.output.weight.T + module.output.bias
    assert (module(x, causal=True).output - expected).abs().max() < 1e-12


@BACKENDS
def test_self_attention_with_a_cache_equals_the_whole_sequence(backend):
    module = _self_attention()
    x = torch.randn(3, 5, 12, dtype=torch.float64)
    whole = module(x, causal=True, backend=backend)
    cache = KeyValueCache()
    parts = [module(x[:, a:b], causal=True, cache=cache, backend=backend) for a, b in [(0, 2), (2, 4), (4, 5)]]
    assert (torch.cat([part.output for part in parts], 1) - whole.output).abs().max() < 1e-12
    if backend == "explicit":
        assert parts[1].weights.shape == (3, 6, 2, 4)


def test_self_attention_rotates_queries_and_keys_but_not_values():
    module = _self_attention()
    x = torch.randn(1, 2, 12, dtype=torch.float64)
    opposite = Rotation(torch.tensor([[[[1.0], [-1.0]]]]).double(), torch.zeros(1, 1, 2, 1).double())  # 0 and 180°
    by_half_a_turn = module(x, signals=PositionSignals(rotation=opposite), backend="explicit").weights
    plain = module(x, backend="explicit").weights
    # Turning one of two tokens by 180° flips the sign of the scores between them and leaves the others.
    logit = torch.log(plain[..., 0, 1] / plain[..., 0, 0])
    q, k, _ = module.query_key_value(x).split([12, 4, 4], -1)
    k_heads = split_heads(k, 2).repeat_interleave(3, dim=1)
    q_heads = split_heads(q, 6)
    to_other = (q_heads[:, :, 0] * k_heads[:, :, 1]).sum(-1) / math.sqrt(2)
    flipped = torch.log(by_half_a_turn[..., 0, 1] / by_half_a_turn[..., 0, 0])
    assert (flipped - (logit - 2 * to_other)).abs().max() < 1e-12
    uniform = _self_attention()
    with torch.no_grad():
        uniform.query_key_value.weight[:16] = 0
        uniform.query_key_value.bias[:16] = 0
    assert torch.equal(uniform(x, signals=PositionSignals(rotation=opposite)).output, uniform(x).output)


def test_self_attention_depends_on_distances_only_with_rotary_positions():
    module = _self_attention()
    x = torch.randn(2, 4, 12, dtype=torch.float64)
    rotary = RotaryPosition(50, 2, 100.0).double()
    here, there = torch.arange(4)[None], torch.arange(4)[None] + 31
    first = module(x, signals=rotary.signals(here, here)).output
    assert (first - module(x, signals=rotary.signals(there, there)).output).abs().max() < 1e-5  # float32 tables
    assert (first - module(x).output).abs().max() > 1e-3


@BACKENDS
def test_cross_attention_reads_a_memory_of_another_length_and_projects_it_once(backend):
    torch.manual_seed(1)
    module = CrossAttention(12, 6, 3, bias=True, qk_norm=True, dropout=0.0).double().eval()
    x, memory = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[1, ..., 4:] = False
    whole = module(x, memory, mask=mask, backend=backend)
    assert whole.output.shape == (2, 4, 12)
    if backend == "explicit":
        assert whole.weights.shape == (2, 6, 4, 7)
    short = module(x[1:], memory[1:, :4], backend=backend).output
    assert (whole.output[1:] - short).abs().max() < 1e-12  # a masked memory equals a shorter one
    cache = MemoryCache()
    module(x[:, :1], memory, mask=mask, cache=cache)
    assert cache.key_NHSE.shape[2] == 7
    later = module(x[:, 1:], torch.full_like(memory, math.nan), mask=mask, cache=cache, backend=backend).output
    assert cache.key_NHSE.shape[2] == 7  # reads what it kept and appends nothing
    assert (later - whole.output[:, 1:]).abs().max() < 1e-12


@BACKENDS
def test_rows_that_share_a_memory_equal_rows_with_a_copy_each(backend):
    module = CrossAttention(12, 6, 3, bias=True, qk_norm=True, dropout=0.0).double().eval()
    x, memory = torch.randn(5, 1, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[1, ..., 4:] = False
    rows = torch.tensor([1, 0, 0, 1, 0])
    copied = module(x, memory[rows], mask=mask[rows], backend=backend)
    memories, cache = SharedMemories(2, None), MemoryCache()
    module(x[:2], memory, mask=mask, cache=cache)
    cache.rearrange(memories.select(rows.numpy(), None), memories.shared)
    shared = module(x, torch.full_like(memory, math.nan), mask=mask, cache=cache, backend=backend)
    assert (shared.output - copied.output).abs().max() < 1e-12
    if backend == "explicit":
        assert (shared.weights - copied.weights).abs().max() < 1e-12


def test_attention_dropout_acts_in_training_only():
    module = _self_attention(dropout=0.5)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert torch.equal(module(x).output, module(x).output)
    module.train()
    assert not torch.equal(module(x).output, module(x).output)
