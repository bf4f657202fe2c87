"""Linear layers in 8-bit integers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer.nn.int8_linear import FloatOutput, Int8Linear, input_levels, select_outputs

LEVELS = input_levels()
pytestmark = pytest.mark.skipif(LEVELS is None, reason="no exact int8 products here")


def made(inputs, outputs, *, bias=True, seed=0, levels=None):
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=bias)
    return linear, Int8Linear.from_linear(linear, LEVELS if levels is None else levels)


def by_hand(layer, linear, x):
    """The same integers by another way: double precision, no offset."""
    step = x.double().abs().amax(1, keepdim=True) / layer.levels
    integers = torch.where(step > 0, (x / step.float()).round().double(), torch.zeros((), dtype=torch.float64))
    product = integers @ layer.weight_NK.double().t() * layer.scale_N.double() * step
    return product if linear.bias is None else product + linear.bias.double()


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 1, 1), (3, 13, 7), (2, 64, 1), (5, 256, 96), (70, 33, 65), (0, 8, 4)]
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("levels", [None, 63])
def test_results_are_those_of_the_integers(rows, inputs, outputs, bias, levels):
    linear, layer = made(inputs, outputs, bias=bias, levels=levels)
    x = torch.randn(rows, inputs) * torch.logspace(-3, 3, rows)[:, None]
    y = layer(x)
    assert (y.shape, y.dtype) == ((rows, outputs), torch.float32)
    # An input halfway between two integers may go to either: one weight's worth.
    expected = by_hand(layer, linear, x).float()
    slack = 2e-6 * (x.abs().sum(1, keepdim=True) * linear.weight.abs().max() + 1)
    assert ((y - expected).abs() <= slack).all()


def test_error_is_within_the_bound_of_rounding():
    linear, layer = made(300, 50)
    x = torch.randn(40, 300)
    x[3] *= 1e3
    x[4, 7] = 500.0  # one outlier makes the row's steps large
    weight, greatest_x = linear.weight.detach(), x.abs().amax(1, keepdim=True)
    greatest_w = weight.abs().amax(1)
    half_w, half_x = greatest_w / 254, greatest_x / (2 * LEVELS)
    bound = x.abs().sum(1, keepdim=True) * half_w + half_x * weight.abs().sum(1) + 300 * half_x * half_w
    error = (layer(x) - linear(x)).abs()
    assert (error <= bound * 1.0001 + 1e-5).all()
    assert error[0].max() > 1e-4  # it does round
    typical = (layer(x[:3]) - linear(x[:3])).norm() / linear(x[:3]).norm()
    assert typical < 0.012


def test_rounding_is_to_the_nearest_integer_with_the_greatest_at_the_end():
    weight = torch.eye(4)
    linear = nn.Linear(4, 4, bias=False)
    linear.weight.data = weight
    layer = Int8Linear.from_linear(linear, 127)
    assert layer.weight_NK.tolist() == (127 * torch.eye(4, dtype=torch.int8)).tolist()
    x = torch.tensor([[127.0, -126.6, 0.4, -0.6], [-254.0, 3.2, 1.2, 0.0]])
    torch.testing.assert_close(layer(x), torch.tensor([[127.0, -127.0, 0.0, -1.0], [-254.0, 4.0, 2.0, 0.0]]))


def test_a_row_does_not_depend_on_the_others():
    _, layer = made(256, 96)
    x = torch.randn(37, 256)
    together = layer(x)
    for row in (0, 5, 36):
        torch.testing.assert_close(layer(x[row : row + 1])[0], together[row], rtol=1e-6, atol=1e-7)
    others = x.clone()
    others[1:] = 1e4 * torch.randn(36, 256)
    torch.testing.assert_close(layer(others)[0], together[0], rtol=1e-6, atol=1e-7)


def test_leading_dimensions_and_strides_are_as_for_linear():
    linear, layer = made(12, 5)
    x = torch.randn(3, 4, 12)
    assert layer(x).shape == (3, 4, 5)
    torch.testing.assert_close(layer(x)[2, 1], layer(x[2, 1]), rtol=1e-6, atol=1e-7)
    strided = torch.randn(12, 6).t()
    torch.testing.assert_close(layer(strided), layer(strided.contiguous()))
    assert layer(strided[:, None])[:, -1].shape == linear(strided).shape


def test_extreme_rows():
    linear, layer = made(16, 8)
    x = torch.randn(6, 16)
    x[0] = 0.0
    x[1, 2] = torch.inf
    x[2, 3] = torch.nan
    x[3] *= 1e30
    x[4] *= 1e-37
    y = layer(x)
    torch.testing.assert_close(y[0], linear.bias.detach())
    assert not torch.isfinite(y[1]).any()
    assert not torch.isfinite(y[2]).any()
    torch.testing.assert_close(y[3], linear(x[3]).detach(), rtol=0.1, atol=1e28)
    torch.testing.assert_close(y[4], linear.bias.detach())
    torch.testing.assert_close(y[5], layer(x[5]))


def test_a_channel_of_zero_weights_is_exactly_zero():
    linear, _ = made(10, 3, bias=False)
    linear.weight.data[1] = 0.0
    assert Int8Linear.from_linear(linear, LEVELS)(torch.randn(4, 10))[:, 1].tolist() == [0.0] * 4


def test_it_takes_a_quarter_of_the_memory_and_has_no_parameters():
    linear, layer = made(256, 512)
    size = sum(buffer.nbytes for buffer in layer.buffers())
    assert size < 0.27 * sum(parameter.nbytes for parameter in linear.parameters())
    assert list(layer.parameters()) == []
    assert {**layer.state_dict()}.keys() == {"weight_NK", "scale_N", "bias_N", "offset_N", "smallest"}
    error = (layer.weight - linear.weight).abs().amax(1)
    assert (error <= linear.weight.abs().amax(1) / 253.9).all()


def test_training_is_refused():
    _, layer = made(4, 4)
    with pytest.raises(ValueError, match="cannot be trained"):
        layer(torch.randn(2, 4, requires_grad=True))
    with torch.no_grad():
        layer(torch.randn(2, 4, requires_grad=True))


@pytest.mark.parametrize("kind", [nn.Linear, FloatOutput, Int8Linear])
@pytest.mark.parametrize("bias", [True, False])
def test_selected_outputs_are_those_of_the_whole_layer(kind, bias):
    torch.manual_seed(0)
    linear = nn.Linear(24, 40, bias=bias)
    layer = linear
    if kind is Int8Linear:
        layer = Int8Linear.from_linear(linear, LEVELS)
    elif kind is FloatOutput:
        layer = FloatOutput(24, 40, bias=bias).bfloat16()
    x = torch.randn(6, 24, dtype=torch.bfloat16 if kind is FloatOutput else torch.float32)
    chosen = torch.tensor([3, 0, 39, 17])
    selected = select_outputs(layer, chosen)
    assert type(selected) is kind
    with torch.no_grad():
        assert selected(x).dtype == torch.float32
        torch.testing.assert_close(selected(x), layer(x)[:, chosen])


def test_levels_shrink_where_products_of_full_range_are_wrong(monkeypatch):
    def saturating(a, b):
        """Pairs of products added in 16 bits, as without VNNI."""
        products = a.long()[:, :, None] * b.long()[None]
        pairs = products.unflatten(1, (-1, 2)).sum(2).clamp(-32768, 32767)
        return pairs.sum(1).int()

    assert LEVELS in (127, 63)
    monkeypatch.setattr(torch, "_int_mm", saturating)
    assert input_levels() == 63
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: saturating(a, b) + 1)
    assert input_levels() is None


def test_a_build_without_mixed_products_has_no_levels(monkeypatch):
    def refuse(a, b):
        raise RuntimeError("expected int8")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    assert input_levels() is None


def test_float_output_gives_float32():
    layer = FloatOutput(8, 5).bfloat16()
    x = torch.randn(3, 8).bfloat16()
    assert layer(x).dtype == torch.float32
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias).float())
