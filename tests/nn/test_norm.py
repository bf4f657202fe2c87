"""Norms over the features of each position."""

import pytest
import torch

from transformer.nn.norm import HeadNorm, build_norm


def _reference(name: str, x: list[float], gain: list[float], bias: list[float], eps: float) -> list[float]:
    mean = sum(x) / len(x) if name == "layer_norm" else 0.0
    variance = sum((v - mean) ** 2 for v in x) / len(x)  # of the population: divided by n
    return [g * (v - mean) / (variance + eps) ** 0.5 + b for v, g, b in zip(x, gain, bias, strict=True)]


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_equals_the_formula_with_epsilon_inside_the_root(name, eps):
    torch.manual_seed(0)
    norm = build_norm(name, 5, eps=eps, bias=True).double()
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, 5, dtype=torch.float64) + 1
    bias = norm.bias.tolist() if name == "layer_norm" else [0.0] * 5
    for row in range(2):
        for time in range(3):
            expected = _reference(name, x[row, time].tolist(), norm.weight.tolist(), bias, eps)
            assert norm(x)[row, time].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_sample_deviation_with_epsilon_outside_is_another_thing():
    x = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    faulty = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
    assert (build_norm("layer_norm", 3, eps=1e-5, bias=True).double()(x) - faulty).abs().max() > 0.1


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_an_example_alone_equals_the_example_in_a_batch(name):
    torch.manual_seed(0)
    norm = build_norm(name, 5, eps=1e-5, bias=True).double()
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    assert (norm(x)[2:3] - norm(x[2:3])).abs().max() < 1e-15


def test_width_one_gives_the_bias_and_no_nan():
    norm = build_norm("layer_norm", 1, eps=1e-5, bias=True)
    torch.nn.init.constant_(norm.bias, 0.75)
    assert norm(torch.tensor([[3.0], [-2.0]])).flatten().tolist() == [0.75, 0.75]


def test_bias_is_optional_and_root_mean_square_norm_never_has_one():
    assert [name for name, _ in build_norm("layer_norm", 4, eps=1e-5, bias=True).named_parameters()] == [
        "weight",
        "bias",
    ]
    assert [name for name, _ in build_norm("layer_norm", 4, eps=1e-5, bias=False).named_parameters()] == ["weight"]
    assert [name for name, _ in build_norm("rms_norm", 4, eps=1e-5, bias=True).named_parameters()] == ["weight"]


def _head_norm(dtype):
    norm = HeadNorm(6).to(dtype)
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    return norm


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_norm_of_heads_keeps_16_bits_and_computes_in_32(dtype):
    """Squares above 65504 have no float16; only the result is rounded, once."""
    torch.manual_seed(0)
    norm = _head_norm(torch.float32)
    x = (torch.randn(2, 3, 4, 6) * 1000).to(dtype)
    wide = x.double()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight.double()
    output = norm(x)
    assert output.dtype == dtype
    assert ((output.double() - exact) / exact).abs().max() < 0.501 * torch.finfo(dtype).eps
    faulty = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight.to(dtype)
    assert ((faulty.double() - exact) / exact).abs().max() > 0.8 * torch.finfo(dtype).eps


def test_the_norm_of_heads_is_exact_in_double_precision():
    torch.manual_seed(0)
    norm = _head_norm(torch.float64)
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    expected = _reference("rms_norm", x[1, 2, 3].tolist(), norm.weight.tolist(), [0.0] * 6, 1e-6)
    assert norm(x)[1, 2, 3].tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", ["encoder_decoder", "decoder_only"])
def test_a_model_with_normed_heads_runs_in_bfloat16_without_a_warning(tiny_bundle, name):
    model = tiny_bundle(name, qk_norm=True, position="rotary").model.train()
    ids = torch.tensor([[5, 6, 7, 8]])
    given = (ids, ids) if name == "encoder_decoder" else (ids,)
    with torch.autocast("cpu", torch.bfloat16):
        model(*given).float().square().mean().backward()
    norms = [module for module in model.modules() if isinstance(module, HeadNorm)]
    assert len(norms) == (6 if name == "encoder_decoder" else 2)
    assert all(norm.weight.grad.abs().max() > 0 for norm in norms)


def test_gradient_of_root_mean_square_norm():
    torch.manual_seed(0)
    norm = build_norm("rms_norm", 5, eps=0.3, bias=False).double()
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, gain: torch.func.functional_call(norm, {"weight": gain}, (x,)), (x, norm.weight)
    )


def test_root_mean_square_norm_equals_that_of_torch_also_in_bfloat16():
    torch.manual_seed(0)
    ours, theirs = build_norm("rms_norm", 64, eps=1e-5, bias=False), torch.nn.RMSNorm(64, 1e-5)
    torch.nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    grad = torch.randn(3, 7, 64)
    for dtype in (torch.float32, torch.bfloat16):
        one, two = (torch.randn(3, 7, 64).to(dtype).requires_grad_() for _ in range(2))
        two.data.copy_(one)
        outputs = ours(one), theirs(two.float()).to(dtype)
        torch.testing.assert_close(*outputs)
        for output in outputs:
            output.backward(grad.to(dtype))
        torch.testing.assert_close(one.grad, two.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, atol=1e-4, rtol=1e-4)
