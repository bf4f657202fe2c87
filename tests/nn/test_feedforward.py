"""The position-wise feed-forward network."""

import math

import pytest
import torch

from transformer.nn.feedforward import FeedForward

D_MODEL, D_FF = 3, 5


def _relu(x: float) -> float:
    return max(x, 0.0)


def _gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def _feed_forward(activation: str, **changes) -> FeedForward:
    torch.manual_seed(0)
    return FeedForward(D_MODEL, D_FF, activation, **{"bias": True, "dropout": 0.0} | changes).double()


def _affine(linear: torch.nn.Linear, x: list[float]) -> list[float]:
    bias = [0.0] * linear.out_features if linear.bias is None else linear.bias.tolist()
    return [b + sum(w * v for w, v in zip(row, x, strict=True))
            for row, b in zip(linear.weight.tolist(), bias, strict=True)]  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("activation", "function"),
    [("relu", _relu), ("gelu", _gelu), ("gelu_tanh", _gelu_tanh), ("swiglu", _silu)],
)
def test_equals_the_formula(activation, function, bias):
    module = _feed_forward(activation, bias=bias)
    assert (module.inner.bias is None) == (module.outer.bias is None) == (not bias)
    x = torch.randn(2, 4, D_MODEL, dtype=torch.float64) * 2
    actual = module(x)
    for row in range(2):
        for time in range(4):
            inner = _affine(module.inner, x[row, time].tolist())
            if activation == "swiglu":
                assert len(inner) == 2 * D_FF
                inner = [function(g) * u for g, u in zip(inner[:D_FF], inner[D_FF:], strict=True)]
            else:
                inner = [function(v) for v in inner]
            assert len(inner) == D_FF
            assert actual[row, time].tolist() == pytest.approx(_affine(module.outer, inner), abs=1e-12)


def test_gelu_and_its_approximation_differ():
    x = torch.randn(2, 4, D_MODEL, dtype=torch.float64) * 2
    exact, approximate = _feed_forward("gelu"), _feed_forward("gelu_tanh")
    assert 1e-6 < (exact(x) - approximate(x)).abs().max() < 1e-2


def test_changing_one_position_leaves_the_others():
    module = _feed_forward("relu")
    x = torch.randn(2, 4, D_MODEL, dtype=torch.float64)
    changed = x.clone()
    changed[1, 2] += 1
    difference = (module(changed) - module(x)).abs().amax(-1)
    assert difference[1, 2] > 1e-3
    difference[1, 2] = 0
    assert difference.max() == 0


def test_without_its_activation_it_would_be_one_linear_map():
    """Additive inputs give additive outputs for the bare product of matrices, but not for the module."""
    module = _feed_forward("relu", bias=False)
    x, y = torch.randn(2, 1, 4, D_MODEL, dtype=torch.float64)
    assert (module.outer(module.inner(x + y)) - module.outer(module.inner(x) + module.inner(y))).abs().max() < 1e-12
    assert (module(x + y) - module(x) - module(y)).abs().max() > 1e-2


def test_dropout_acts_on_the_inner_activations():
    module = _feed_forward("relu", dropout=0.5, bias=False)
    x = torch.randn(1, 1, D_MODEL, dtype=torch.float64)
    assert torch.equal(module.eval()(x), _feed_forward("relu", bias=False)(x))
    inner = torch.relu(module.inner(x))[0, 0]
    module.train()
    kept = [[bool(number >> bit & 1) for bit in range(D_FF)] for number in range(2**D_FF)]
    possible = [2 * inner * torch.tensor(bits) @ module.outer.weight.T for bits in kept]
    for _ in range(20):
        assert min((module(x)[0, 0] - output).abs().max().item() for output in possible) < 1e-12
