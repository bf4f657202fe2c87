"""Modules (C1-C6, C8, C9): norms, residuals, feed-forward, heads, positions; faulty variants."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig
from transformer.nn.feedforward import FeedForward
from transformer.nn.layers import Residual, TransformerLayer
from transformer.nn.multihead import CrossAttention, SelfAttention
from transformer.nn.norm import build_norm
from transformer.nn.positions import SinusoidalPosition

LM = {"name": "decoder_only", "num_layers": 2, "d_model": 16, "num_heads": 2, "max_length": 8}


def layer_norm_by_hand(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) / (variance + eps).sqrt() * gain + shift


def faulty_layer_norm(x: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps)


@pytest.mark.parametrize("spread", [1.0, 1e-3])  # at 1e-3 the variance is below epsilon
def test_c01_layer_norm(spread: float) -> None:
    x, norm = spread * torch.randn(3, 4, 8), build_norm("layer_norm", 8, eps=1e-5, bias=True)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    reference = nn.LayerNorm(8, eps=1e-5)
    reference.load_state_dict(norm.state_dict())
    assert (norm(x) - layer_norm_by_hand(x, norm.weight, norm.bias, 1e-5)).abs().max() < 1e-12
    assert (norm(x) - reference(x)).abs().max() < 1e-12


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_c01_counterexample_sample_deviation_and_epsilon_outside(spread: float) -> None:
    x = spread * torch.randn(3, 4, 8)
    right = build_norm("layer_norm", 8, eps=1e-5, bias=True)(x)
    assert (faulty_layer_norm(x, 1e-5) - right).abs().max() > 0.05


def test_c01_width_one_gives_the_bias() -> None:
    norm = build_norm("layer_norm", 1, eps=1e-5, bias=True)
    nn.init.constant_(norm.bias, 0.25)
    x = torch.randn(3, 1)
    assert norm(x).tolist() == [[0.25]] * 3
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert faulty_layer_norm(x, 1e-5).isnan().all()


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_c02_norm_takes_no_statistic_over_the_batch(name: str) -> None:
    norm, x = build_norm(name, 8, eps=1e-5, bias=True), torch.randn(3, 4, 8)  # type: ignore[arg-type]
    assert (norm(x[1:2]) - norm(x)[1:2]).abs().max() < 1e-15

    def over_the_batch(x: Tensor) -> Tensor:
        return (x - x.mean((0, 1))) / (x.var((0, 1), unbiased=False) + 1e-5).sqrt()

    assert (over_the_batch(x[1:2]) - over_the_batch(x)[1:2]).abs().max() > 0.1


class NormalisedResidual(nn.Module):
    """The fault: the residual is taken after the norm."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x_BLD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        x_BLD = self.norm(x_BLD)
        return x_BLD + sublayer(x_BLD)


def test_c03_pre_norm() -> None:
    norm, x = build_norm("layer_norm", 8, eps=1e-5, bias=True), torch.randn(2, 3, 8)
    residual = Residual(norm, "pre", 0.0)
    assert torch.equal(residual(x, torch.zeros_like), x)
    assert (residual(x, torch.tanh) - (x + torch.tanh(norm(x)))).abs().max() < 1e-15
    faulty = NormalisedResidual(norm)
    assert torch.equal(faulty(x, torch.zeros_like), norm(x))
    assert (faulty(x, torch.zeros_like) - x).abs().max() > 0.05


def test_c04_post_norm() -> None:
    norm, x = build_norm("layer_norm", 8, eps=1e-5, bias=True), torch.randn(2, 3, 8)
    residual = Residual(norm, "post", 0.0)
    assert (residual(x, torch.tanh) - norm(x + torch.tanh(x))).abs().max() < 1e-15
    assert torch.equal(residual(x, torch.zeros_like), norm(x))
    assert (residual(x, torch.tanh) - Residual(norm, "pre", 0.0)(x, torch.tanh)).abs().max() > 0.1


RESIDUALS = {"self_residual": "self_attention", "cross_residual": "cross_attention",
             "feed_forward_residual": "feed_forward"}  # fmt: skip


def silenced_layer(names: list[str], cross_attention: bool) -> TransformerLayer:
    """A layer with non-trivial norms in which the named sublayers write nothing."""
    config = DecoderOnlyConfig.from_plain(LM)
    layer = TransformerLayer(config, cross_attention=cross_attention).eval()
    for name in names:
        sublayer = layer.get_submodule(RESIDUALS[name])
        projection = sublayer.outer if isinstance(sublayer, FeedForward) else sublayer.output
        nn.init.zeros_(projection.weight)
        nn.init.zeros_(projection.bias)
    return layer


@pytest.mark.parametrize("cross_attention", [False, True])
def test_c05_silent_layer_is_the_identity(cross_attention: bool) -> None:
    names = [name for name in RESIDUALS if cross_attention or name != "cross_residual"]
    layer = silenced_layer(names, cross_attention)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    assert torch.equal(layer(x, memory_BSD=memory).hidden_BLD, x)
    for name in names:  # counterexample: one faulty residual among correct ones is enough to fail
        right = layer.get_submodule(name)
        layer.set_submodule(name, NormalisedResidual(right.norm))
        assert (layer(x, memory_BSD=memory).hidden_BLD - x).abs().max() > 0.05
        layer.set_submodule(name, right)


@pytest.mark.parametrize("silent", RESIDUALS)
def test_c05_each_sublayer_in_turn(silent: str) -> None:
    layer = silenced_layer([silent], cross_attention=True)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    sublayers = {
        "self_residual": lambda y: layer.self_attention(y, causal=True).output,
        "cross_residual": lambda y: layer.cross_attention(y, memory).output,
        "feed_forward_residual": layer.feed_forward,
    }
    expected = x
    for name in RESIDUALS:
        if name != silent:
            expected = expected + sublayers[name](layer.get_submodule(name).norm(expected))
    assert (layer(x, causal=True, memory_BSD=memory).hidden_BLD - expected).abs().max() < 1e-12


def test_c06_inner_width_is_its_own_setting() -> None:
    for settings, width in (({}, 64), ({"d_ff": 24}, 24)):
        layer = TransformerLayer(DecoderOnlyConfig.from_plain({**LM, **settings}), cross_attention=False)
        assert layer.feed_forward.inner.weight.shape == (width, 16)
        assert layer.feed_forward.outer.weight.shape == (16, width)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "swiglu"])
def test_c06_acts_per_position_and_needs_its_nonlinearity(activation: str) -> None:
    network = FeedForward(8, 24, activation, bias=True, dropout=0.0)  # type: ignore[arg-type]
    x, y = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    alone = torch.cat([network(x[:, i : i + 1]) for i in range(5)], dim=1)
    assert (network(x) - alone).abs().max() < 1e-12

    def additivity(f: Callable[[Tensor], Tensor]) -> float:
        return (f(x + y) - f(x) - f(y) + f(torch.zeros_like(x))).abs().max().item()

    assert additivity(network) > 1e-2
    # Counterexample: without the non-linearity, two layers are one affine map.
    inner = nn.Linear(8, 24)
    assert additivity(lambda x: network.outer(inner(x))) < 1e-12
    product = network.outer.weight @ inner.weight
    collapsed = x @ product.T + network.outer(inner.bias)
    assert (network.outer(inner(x)) - collapsed).abs().max() < 1e-12


@pytest.mark.parametrize("build", [SelfAttention, CrossAttention])
def test_c08_attention_modules_check_too(build: type[SelfAttention] | type[CrossAttention]) -> None:
    with pytest.raises(ValueError, match=r"`num_heads` must divide `d_model` \(10\), but is 4"):
        build(10, 4, 4, bias=True, qk_norm=False, dropout=0.0)
    with pytest.raises(ValueError, match=r"`num_kv_heads` must divide `num_heads` \(4\), but is 3"):
        build(16, 4, 3, bias=True, qk_norm=False, dropout=0.0)


def test_c08_counterexample_divisible_by_heads_but_not_the_residual_width() -> None:
    dim, heads, width = 12, 4, 16
    assert dim % heads == 0  # the only check of the faulty kind, and it passes
    query, output = nn.Linear(width, dim), nn.Linear(dim, dim)
    x = torch.randn(1, 3, width)
    with pytest.raises(RuntimeError, match="must match the size"):
        x + output(query(x))
    module = SelfAttention(width, heads, heads, bias=True, qk_norm=False, dropout=0.0)
    assert module(x).output.shape == x.shape


def test_c09_sinusoidal_values() -> None:
    table = SinusoidalPosition(8, 4).table_LD
    for t, row in ((0, [0.0, 1.0, 0.0, 1.0]), (1, [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004]),
                   (7, [0.6569865987, 0.7539022543, 0.0699428473, 0.9975510003])):  # fmt: skip
        assert table[t].tolist() == pytest.approx(row, abs=1e-10)
    wide = SinusoidalPosition(8, 10).table_LD
    for i in range(5):
        assert wide[7, 2 * i].item() == pytest.approx(math.sin(7 / 10000 ** (2 * i / 10)), abs=1e-14)
        assert wide[7, 2 * i + 1].item() == pytest.approx(math.cos(7 / 10000 ** (2 * i / 10)), abs=1e-14)


def test_c09_odd_width_works_and_ends_with_a_sine() -> None:
    table = SinusoidalPosition(8, 3).table_LD
    assert table.shape == (8, 3)
    assert table[7].tolist() == pytest.approx([math.sin(7), math.cos(7), math.sin(7 / 10000 ** (2 / 3))], abs=1e-14)


def test_c09_table_is_no_parameter() -> None:
    position = SinusoidalPosition(8, 4)
    assert list(position.parameters()) == []
    assert [name for name, _ in position.named_buffers()] == ["table_LD"]
    assert position.state_dict() == {}
