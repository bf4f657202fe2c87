"""Residual connections and whole layers."""

import pytest
import torch
from torch import nn

from transformer.nn.cache import LayerCache
from transformer.nn.config import StackConfig
from transformer.nn.layers import Residual, TransformerLayer, final_norm


def _config(**changes) -> StackConfig:
    return StackConfig(**{"d_model": 12, "num_heads": 3, "d_ff": 20, "max_length": 16, "dropout": 0.0} | changes)


def _layer(*, cross_attention: bool, **changes) -> TransformerLayer:
    torch.manual_seed(0)
    layer = TransformerLayer(_config(**changes), cross_attention=cross_attention).double().eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return layer


def _x(length: int = 4) -> torch.Tensor:
    return torch.randn(2, length, 12, generator=torch.Generator().manual_seed(length), dtype=torch.float64) + 0.5


def test_pre_norm_adds_to_the_unnormalised_input_and_post_norm_normalises_the_sum():
    norm = nn.LayerNorm(12).double()
    x = _x()
    pre, post = Residual(norm, "pre", 0.0), Residual(norm, "post", 0.0)
    assert torch.equal(pre(x, torch.tanh), x + torch.tanh(norm(x)))
    assert torch.equal(post(x, torch.tanh), norm(x + torch.tanh(x)))
    assert torch.equal(pre(x, torch.zeros_like), x)
    assert torch.equal(post(x, torch.zeros_like), norm(x))
    normalised = norm(x)
    faulty = normalised + torch.tanh(normalised)  # the residual taken after the norm
    assert (pre(x, torch.tanh) - faulty).abs().max() > 0.5


def test_dropout_falls_on_the_sublayer_and_never_on_the_residual():
    torch.manual_seed(0)
    residual = Residual(nn.Identity(), "pre", 0.5)
    x = _x()
    added = residual(x, torch.ones_like) - x
    assert {round(value, 9) for value in added.flatten().tolist()} == {0.0, 2.0}
    post = Residual(nn.Identity(), "post", 0.5)
    assert {round(value, 9) for value in (post(x, torch.ones_like) - x).flatten().tolist()} == {0.0, 2.0}


SUBLAYERS = {
    "self": ("self_attention.output", "self_residual"),
    "cross": ("cross_attention.output", "cross_residual"),
    "feed_forward": ("feed_forward.outer", "feed_forward_residual"),
}


@pytest.mark.parametrize("cross_attention", [False, True])
def test_a_pre_norm_layer_whose_sublayers_give_zero_is_the_identity(cross_attention):
    layer = _layer(cross_attention=cross_attention)
    names = [name for name in SUBLAYERS if cross_attention or name != "cross"]
    for name in names:
        projection = layer.get_submodule(SUBLAYERS[name][0])
        nn.init.zeros_(projection.weight)
        nn.init.zeros_(projection.bias)
    memory = _x(7) if cross_attention else None
    assert torch.equal(layer(_x(), memory_BSD=memory).hidden_BLD, _x())


@pytest.mark.parametrize("sublayer", list(SUBLAYERS))
def test_silencing_one_sublayer_equals_leaving_it_out(sublayer):
    """Every sublayer keeps the un-normalised residual: without it, the layer is the two others in order."""
    layer, x, memory = _layer(cross_attention=True), _x(), _x(7)
    projection = layer.get_submodule(SUBLAYERS[sublayer][0])
    nn.init.zeros_(projection.weight)
    nn.init.zeros_(projection.bias)
    steps = {
        "self": lambda y: y + layer.self_attention(layer.self_residual.norm(y), causal=True).output,
        "cross": lambda y: y + layer.cross_attention(layer.cross_residual.norm(y), memory).output,
        "feed_forward": lambda y: y + layer.feed_forward(layer.feed_forward_residual.norm(y)),
    }
    expected = x
    for name, step in steps.items():
        if name != sublayer:
            expected = step(expected)
    actual = layer(x, causal=True, memory_BSD=memory).hidden_BLD
    assert (actual - expected).abs().max() < 1e-12
    assert (actual - x).abs().max() > 0.1


def test_each_sublayer_has_a_norm_of_its_own():
    layer = _layer(cross_attention=True)
    norms = [layer.get_submodule(residual).norm for _, residual in SUBLAYERS.values()]
    assert len({id(norm.weight) for norm in norms}) == 3


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_memory_of_another_length_and_its_padding(norm_position):
    layer, x, memory = _layer(cross_attention=True, norm_position=norm_position), _x(), _x(7)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[0, ..., 3:] = False
    output = layer(x, causal=True, memory_BSD=memory, memory_mask=mask, backend="explicit")
    assert output.hidden_BLD.shape == (2, 4, 12)
    assert output.self_weights_BHLL.shape == (2, 3, 4, 4)
    assert output.cross_weights_BHTS.shape == (2, 3, 4, 7)
    assert output.cross_weights_BHTS[0, ..., 3:].abs().max() == 0
    alone = layer(x[:1], causal=True, memory_BSD=memory[:1, :3]).hidden_BLD
    assert (output.hidden_BLD[:1] - alone).abs().max() < 1e-12
    fused = layer(x, causal=True, memory_BSD=memory, memory_mask=mask)
    assert fused.self_weights_BHLL is None
    assert fused.cross_weights_BHTS is None
    assert (fused.hidden_BLD - output.hidden_BLD).abs().max() < 1e-12


def test_steps_with_a_cache_equal_the_whole_sequence():
    layer, x, memory = _layer(cross_attention=True), _x(5), _x(7)
    cache = LayerCache()
    parts = [
        layer(x[:, a:b], causal=True, memory_BSD=memory, cache=cache).hidden_BLD for a, b in [(0, 2), (2, 3), (3, 5)]
    ]
    whole = layer(x, causal=True, memory_BSD=memory).hidden_BLD
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12
    assert cache.self_attention.length == 5
    assert cache.cross_attention.key_NHSE.shape[2] == 7


def test_settings_reach_their_places():
    layer = _layer(
        cross_attention=True,
        num_kv_heads=1,
        bias=False,
        qk_norm=True,
        norm="rms_norm",
        norm_eps=0.25,
        activation="swiglu",
        dropout=0.1,
        attention_dropout=0.2,
        activation_dropout=0.3,
    )
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()}
    assert shapes == {
        "self_attention.query_key_value.weight": (20, 12),
        "self_attention.query_norm.weight": (4,),
        "self_attention.key_norm.weight": (4,),
        "self_attention.output.weight": (12, 12),
        "self_residual.norm.weight": (12,),
        "cross_attention.query.weight": (12, 12),
        "cross_attention.key_value.weight": (8, 12),
        "cross_attention.query_norm.weight": (4,),
        "cross_attention.key_norm.weight": (4,),
        "cross_attention.output.weight": (12, 12),
        "cross_residual.norm.weight": (12,),
        "feed_forward.inner.weight": (40, 12),
        "feed_forward.outer.weight": (12, 20),
        "feed_forward_residual.norm.weight": (12,),
    }
    assert layer.self_residual.norm.eps == 0.25
    assert layer.cross_residual.dropout.p == layer.feed_forward_residual.dropout.p == 0.1
    assert layer.self_attention.dropout == layer.cross_attention.dropout == 0.2
    assert layer.feed_forward.dropout.p == 0.3


def test_the_last_norm_belongs_to_pre_norm_only():
    assert isinstance(final_norm(_config(norm_position="post")), nn.Identity)
    norm = final_norm(_config(norm_position="pre", norm_eps=0.5, bias=False))
    assert isinstance(norm, nn.LayerNorm)
    assert (norm.eps, norm.bias) == (0.5, None)
    assert isinstance(final_norm(_config(norm="rms_norm")), nn.RMSNorm)
