"""Many heads (A11, A13-A17): shapes, cost, memory, and faulty variants that break each claim."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from transformer.models.config import EncoderDecoderConfig
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.attention import Backend, attention
from transformer.nn.multihead import CrossAttention, SelfAttention, merge_heads, split_heads

BACKENDS: tuple[Backend, ...] = ("fused", "explicit")
both_backends = pytest.mark.parametrize("backend", BACKENDS)


def assert_close(actual: Tensor, expected: object, tolerance: float) -> None:
    expected = expected if isinstance(expected, Tensor) else torch.tensor(expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@both_backends
def test_a11_shapes(backend: Backend) -> None:
    target, memory = torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    query, key = split_heads(target, 4), split_heads(memory, 4)
    attended = attention(query, key, key, backend=backend)
    assert query.shape == (2, 4, 3, 8)
    if attended.weights is not None:
        assert attended.weights.shape == (2, 4, 3, 5)
    assert attended.output.shape == (2, 4, 3, 8)
    assert merge_heads(attended.output).shape == (2, 3, 32)
    module = CrossAttention(32, 4, 4, bias=True, qk_norm=False, dropout=0.0)
    output, weights = module(target, memory, backend="explicit")
    assert output.shape == (2, 3, 32)
    assert weights.shape == (2, 4, 3, 5)


def test_a13_heads_are_viewed_then_transposed() -> None:
    x = torch.randn(2, 3, 8)
    heads = split_heads(x, 4)
    assert torch.equal(heads, torch.stack([x[..., 2 * h : 2 * h + 2] for h in range(4)], dim=1))
    assert torch.equal(merge_heads(heads), x)


def test_a13_counterexample_direct_reshape_mixes_time_with_heads() -> None:
    x = torch.randn(2, 3, 8)
    changed = x.clone()
    changed[:, 2] += 1.0

    def first_two_steps(heads: Tensor) -> Tensor:
        return attention(heads, heads, heads, causal=True).output[:, :, :2]

    assert torch.equal(first_two_steps(split_heads(x, 4)), first_two_steps(split_heads(changed, 4)))
    faulty, faulty_changed = (first_two_steps(y.reshape(2, 4, 3, 2)) for y in (x, changed))
    assert (faulty - faulty_changed).abs().max() > 0.1
    assert (faulty - first_two_steps(split_heads(x, 4))).abs().max() > 0.1


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_a14_heads_cost_nothing(heads: int) -> None:
    module = SelfAttention(32, heads, heads, bias=False, qk_norm=False, dropout=0.0)
    with FlopCounterMode(display=False) as counter:
        module(torch.randn(2, 10, 32), backend="explicit")
    # Two operations a multiply-add: four projections of 32 x 32, then scores and the mixing of values.
    assert counter.get_total_flops() == 2 * 2 * (4 * 10 * 32 * 32 + 2 * 10 * 10 * 32)
    output = module.output.weight.numel()
    assert sum(p.numel() for p in module.parameters()) - output == 3 * 32 * 32
    assert output == 32 * 32


@both_backends
def test_a15_fused_projection_equals_three(backend: Backend) -> None:
    module = SelfAttention(16, 4, 4, bias=True, qk_norm=False, dropout=0.0)
    x = torch.randn(2, 5, 16)
    projections = [nn.Linear(16, 16) for _ in range(3)]
    for index, projection in enumerate(projections):
        rows = slice(16 * index, 16 * (index + 1))
        projection.weight.data = module.query_key_value.weight.data[rows]
        projection.bias.data = module.query_key_value.bias.data[rows]
    query, key, value = (split_heads(projection(x), 4) for projection in projections)
    separate = module.output(merge_heads(attention(query, key, value, causal=True).output))
    assert_close(module(x, causal=True, backend=backend).output, separate, 1e-12)


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "alibi"])
@both_backends
def test_a16_permuted_tokens_permute_outputs_only_without_positions(position: str, backend: Backend) -> None:
    config = EncoderDecoderConfig.from_plain(
        {"name": "encoder_decoder", "d_model": 16, "num_heads": 2, "max_length": 8, "position": position,
         "num_encoder_layers": 2, "num_decoder_layers": 1}
    )  # fmt: skip
    model = EncoderDecoder(config, 11, 11).eval()
    tokens, order = torch.tensor([[3, 1, 4, 1, 5, 9]]), torch.tensor([5, 2, 0, 4, 1, 3])
    permuted = model.encode(tokens[:, order], backend=backend).memory_BSD
    deviation = (permuted - model.encode(tokens, backend=backend).memory_BSD[:, order]).abs().max().item()
    assert deviation < 1e-12 if position == "none" else deviation > 1e-3


def stored_for_backward(backend: Backend, length: int) -> int:
    """The largest tensor that autograd keeps, in elements."""
    sizes = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    query, key, value = (torch.randn(2, 2, length, 8, requires_grad=True) for _ in range(3))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        attention(query, key, value, causal=True, backend=backend)
    return max(sizes)


def peak_bytes(backend: Backend, length: int, trace: Path) -> int:
    """The most memory alive at once during one call, inputs not counted."""
    query, key, value = (torch.randn(1, 1, length, 8) for _ in range(3))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        attention(query, key, value, causal=True, backend=backend)
    profiler.export_chrome_trace(str(trace))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        alive += event["args"]["Bytes"]
        peak = max(peak, alive)
    return peak


def test_a17_only_the_explicit_backend_stores_the_weights() -> None:
    assert stored_for_backward("explicit", 128) == 2 * 2 * 128 * 128
    assert stored_for_backward("explicit", 256) == 2 * 2 * 256 * 256
    assert stored_for_backward("fused", 128) == 2 * 2 * 128 * 8
    assert stored_for_backward("fused", 256) == 2 * 2 * 256 * 8


def test_a17_peak_memory(tmp_path: Path) -> None:
    explicit, fused = (
        [peak_bytes(backend, length, tmp_path / "trace.json") for length in (1024, 2048)]
        for backend in ("explicit", "fused")
    )
    assert 3.5 < explicit[1] / explicit[0] < 4.5
    assert 0 < fused[1] / fused[0] < 2.5  # the fused kernel's own tiles do not grow


def test_a17_backends_agree() -> None:
    query, key, value = (torch.randn(2, 2, 300, 8) for _ in range(3))
    mask = torch.rand(2, 1, 1, 300) < 0.7
    fused, explicit = (attention(query, key, value, mask=mask, causal=True, backend=b).output for b in BACKENDS)
    assert_close(fused, explicit, 1e-10)
