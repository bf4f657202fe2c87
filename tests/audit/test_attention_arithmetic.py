"""Attention arithmetic, one head (A1-A10, A12): literal values and faulty variants that break each claim."""

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transformer.nn.attention import Backend, attention

BACKENDS: tuple[Backend, ...] = ("fused", "explicit")
both_backends = pytest.mark.parametrize("backend", BACKENDS)

# Six tokens, "Your journey starts with one step", with every projection the identity.
SIX_TOKENS = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64],
              [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]  # fmt: skip
SIX_SCORES = [
    [0.577, 0.551, 0.544, 0.274, 0.264, 0.364],
    [0.551, 0.863, 0.852, 0.487, 0.408, 0.627],
    [0.544, 0.852, 0.841, 0.479, 0.413, 0.612],
    [0.274, 0.487, 0.479, 0.285, 0.201, 0.379],
    [0.264, 0.408, 0.413, 0.201, 0.384, 0.169],
    [0.364, 0.627, 0.612, 0.379, 0.169, 0.546],
]
SIX_WEIGHTS = [
    [1.000, 0, 0, 0, 0, 0],
    [0.423, 0.577, 0, 0, 0, 0],
    [0.270, 0.367, 0.363, 0, 0, 0],
    [0.223, 0.276, 0.274, 0.226, 0, 0],
    [0.186, 0.215, 0.216, 0.174, 0.210, 0],
    [0.151, 0.197, 0.194, 0.153, 0.124, 0.181],
]
SIX_OUTPUTS = [[0.430, 0.150, 0.890], [0.499, 0.566, 0.757], [0.525, 0.668, 0.715],
               [0.454, 0.638, 0.631], [0.521, 0.551, 0.524], [0.422, 0.623, 0.551]]  # fmt: skip


def one_head(rows: object) -> Tensor:
    """A matrix as one batch row with one head."""
    return torch.tensor(rows)[None, None] if not isinstance(rows, Tensor) else rows[None, None]


def weights_of(query: Tensor, key: Tensor, backend: Backend, **settings: object) -> Tensor:
    """The weights of either backend: with one-hot values, the output is the weights."""
    value = torch.eye(key.shape[2], dtype=query.dtype).expand(*key.shape[:2], -1, -1)
    return attention(query, key, value, backend=backend, **settings).output  # type: ignore[arg-type]


def by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One head of unmasked attention in Python's own floats, term by term."""
    rows = []
    for q in query.tolist():
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q)) for k in key.tolist()]
        terms = [math.exp(s - max(scores)) for s in scores]
        total = math.fsum(terms)
        columns = zip(*value.tolist(), strict=True)
        rows.append([math.fsum(t * v for t, v in zip(terms, c, strict=True)) / total for c in columns])
    return torch.tensor(rows)


class Operations(TorchDispatchMode):
    """Records each operation that torch runs, with its first input's dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, torch.dtype | None]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        first = args[0] if args and isinstance(args[0], Tensor) else None
        self.calls.append((func.overloadpacket.__name__, None if first is None else first.dtype))
        return func(*args, **(kwargs or {}))


def assert_close(actual: Tensor, expected: object, tolerance: float) -> None:
    expected = expected if isinstance(expected, Tensor) else torch.tensor(expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@both_backends
def test_a01_two_tokens(backend: Backend) -> None:
    identity = one_head(torch.eye(2))
    output = attention(identity, identity, 10 * identity, backend=backend).output[0, 0]
    assert_close(weights_of(identity, identity, backend)[0, 0], [[0.6698, 0.3302], [0.3302, 0.6698]], 5e-5)
    assert_close(output, [[6.698, 3.302], [3.302, 6.698]], 5e-4)


@both_backends
def test_a02_one_query_two_keys(backend: Backend) -> None:
    query, key, value = one_head([[1.0, 0.0]]), one_head([[1.0, 0.0], [0.0, 1.0]]), one_head([[10.0], [20.0]])
    assert_close(weights_of(query, key, backend)[0, 0], [[0.6698, 0.3302]], 5e-5)
    assert_close(attention(query, key, value, backend=backend).output[0, 0], [[13.3024]], 5e-5)


@both_backends
def test_a03_six_token_example(backend: Backend) -> None:
    x = one_head(SIX_TOKENS)
    weights = weights_of(x, x, backend, causal=True)[0, 0]
    assert_close(weights, SIX_WEIGHTS, 6e-4)
    assert weights.triu(1).count_nonzero() == 0
    assert_close(attention(x, x, x, causal=True, backend=backend).output[0, 0], SIX_OUTPUTS, 6e-4)


@both_backends
def test_a03_six_token_scores(backend: Backend) -> None:
    # Log-weights are the scores up to a constant for each row; the diagonal fixes it. Two roundings: 1e-3.
    x, scores = one_head(SIX_TOKENS), torch.tensor(SIX_SCORES)
    logs = weights_of(x, x, backend)[0, 0].log()
    assert_close(logs - logs.diagonal()[:, None], scores - scores.diagonal()[:, None], 1.1e-3)
    masked = scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -math.inf)
    assert_close(weights_of(x, x, backend, causal=True)[0, 0], masked.softmax(-1), 1e-3)


@both_backends
def test_a04_zero_scores_give_uniform_causal_rows(backend: Backend) -> None:
    zeros = torch.zeros(1, 1, 3, 4)
    weights = weights_of(zeros, zeros, backend, causal=True)[0, 0]
    assert weights.tolist() == [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]


@both_backends
@pytest.mark.parametrize("constant", [1e4, -1e4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-3)])
def test_a05_softmax_ignores_a_constant(
    backend: Backend, constant: float, dtype: torch.dtype, tolerance: float
) -> None:
    query, key = torch.randn(1, 2, 4, 3, dtype=dtype), torch.randn(1, 2, 5, 3, dtype=dtype)
    # One more feature, 1 in every key and the constant in every query, adds the constant to every score.
    lifted = torch.cat([query, torch.full((1, 2, 4, 1), constant, dtype=dtype)], -1)
    ones = torch.cat([key, torch.ones(1, 2, 5, 1, dtype=dtype)], -1)
    plain = weights_of(query, key, backend, scale=1.0)
    assert_close(weights_of(lifted, ones, backend, scale=1.0), plain, tolerance)


def test_a05_counterexample_exponentials_of_raw_scores_overflow() -> None:
    terms = (torch.randn(5) + 1e4).exp()
    assert (terms / terms.sum()).isnan().all()


@pytest.mark.parametrize("size", [16, 64, 256])
@both_backends
def test_a06_scaled_scores_have_unit_variance(backend: Backend, size: int) -> None:
    count = 20_000
    query, key = torch.randn(count, 1, 1, size), torch.randn(count, 1, 1, size)
    # Against a zero key, whose score is 0, the log-ratio of the two weights is the score itself.
    keys = torch.cat([key, torch.zeros_like(key)], dim=2)
    scaled, raw = (weights_of(query, keys, backend, scale=scale)[:, 0, 0].log() for scale in (None, 1.0))
    assert (scaled[:, 0] - scaled[:, 1]).var().item() == pytest.approx(1, rel=0.05)
    assert (raw[:, 0] - raw[:, 1]).var().item() == pytest.approx(size, rel=0.05)


def test_a06_counterexample_unscaled_scores_saturate() -> None:
    query, key, value = torch.randn(64, 1, 1, 256), torch.randn(64, 1, 16, 256), torch.randn(64, 1, 16, 1)
    unscaled = (query @ key.mT).requires_grad_()
    unscaled_weights = unscaled.softmax(-1)
    (unscaled_gradient,) = torch.autograd.grad((unscaled_weights @ value).sum(), unscaled)

    bias = torch.zeros(64, 1, 1, 16, requires_grad=True)  # its gradient is the gradient of the scores
    attended = attention(query, key, value, bias=bias, backend="explicit")
    (gradient,) = torch.autograd.grad(attended.output.sum(), bias)
    assert attended.weights is not None
    assert unscaled_weights.amax(-1).mean() > 0.9 > 0.5 > attended.weights.amax(-1).mean()
    assert unscaled_gradient.abs().mean() < 0.3 * gradient.abs().mean()


@both_backends
def test_a07_rows_sum_to_one_and_forbidden_weights_are_zero(backend: Backend) -> None:
    query, key = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5)
    mask = torch.rand(2, 1, 4, 6) < 0.5
    mask[..., 0] = True
    weights = weights_of(query, key, backend, mask=mask)
    assert_close(weights.sum(-1), torch.ones(2, 3, 4), 1e-12)
    assert torch.equal(weights == 0, ~mask.expand_as(weights))


def test_a07_counterexample_softmax_over_queries() -> None:
    faulty = (torch.randn(4, 5) @ torch.randn(6, 5).T / math.sqrt(5)).softmax(0)
    assert (faulty.sum(-1) - 1).abs().max() > 0.1


@both_backends
def test_a08_counterexample_mask_after_softmax(backend: Backend) -> None:
    x = one_head(torch.randn(4, 5))
    faulty = (x @ x.mT / math.sqrt(5)).softmax(-1).tril()
    weights = weights_of(x, x, backend, causal=True)
    assert (faulty.sum(-1)[0, 0, :3] < 0.99).all()
    assert_close(weights.sum(-1), torch.ones(1, 1, 4), 1e-12)
    assert (faulty - weights).abs().max() > 0.01


@both_backends
@pytest.mark.parametrize(("queries", "keys", "width"), [(2, 3, 2), (2, 5, 4), (5, 2, 3)])
def test_a09_query_and_key_lengths_differ(backend: Backend, queries: int, keys: int, width: int) -> None:
    query, key, value = torch.randn(queries, 3), torch.randn(keys, 3), torch.randn(keys, width)
    attended = attention(one_head(query), one_head(key), one_head(value), backend=backend)
    assert attended.output.shape == (1, 1, queries, width)
    assert_close(attended.output[0, 0], by_hand(query, key, value), 1e-12)
    if attended.weights is not None:
        assert attended.weights.shape == (1, 1, queries, keys)


def test_a09_counterexample_keys_reshaped_with_the_query_length() -> None:
    query, key, value = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 3)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        torch.randn(5, 3).reshape(-1, len(query), 3)
    # Where the lengths happen to divide, rows are mixed instead: four keys become two groups of two.
    keys, values = key.reshape(-1, len(query), 3), value.reshape(-1, len(query), 3)
    faulty = ((query @ keys.mT / math.sqrt(3)).softmax(-1) @ values)[0]
    right = attention(one_head(query), one_head(key), one_head(value)).output[0, 0]
    assert_close(right, by_hand(query, key, value), 1e-12)
    assert (faulty - right).abs().max() > 0.05


def test_a10_key_and_value_lengths_differ() -> None:
    query, key, value = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 5, 3), torch.randn(1, 1, 6, 3)
    with Operations() as operations, pytest.raises(ValueError, match="5 keys and 6 values"):
        attention(query, key, value)
    assert operations.calls == []


@both_backends
def test_a12_float64_all_the_way(backend: Backend) -> None:
    query, key, value = torch.randn(7, 16), torch.randn(9, 16), torch.randn(9, 4)
    output = attention(one_head(query), one_head(key), one_head(value), backend=backend).output[0, 0]
    assert output.dtype == torch.float64
    assert_close(output, by_hand(query, key, value), 1e-12)


def test_a12_counterexample_float32_scores() -> None:
    query, key, value = torch.randn(7, 16), torch.randn(9, 16), torch.randn(9, 4)
    faulty = (query @ key.T / 4).float().softmax(-1).double() @ value
    assert 1e-9 < (faulty - by_hand(query, key, value)).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a12_low_precision_softmax_is_in_float32(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(1, 2, 5, 8, dtype=dtype) for _ in range(3))
    with Operations() as operations:
        output, weights = attention(query, key, value, causal=True, backend="explicit")
    assert [kind for name, kind in operations.calls if name == "_softmax"] == [torch.float32]
    assert output.dtype == dtype
    assert weights is not None
    assert weights.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a12_fused_low_precision_beats_a_softmax_of_rounded_scores(dtype: torch.dtype) -> None:
    query, key, value = (3 * torch.randn(64, 32) for _ in range(3))
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    exact = by_hand(query.double(), key.double(), value.double())
    fused = attention(one_head(query), one_head(key), one_head(value)).output[0, 0]
    faulty = (query @ key.T / math.sqrt(32)).softmax(-1) @ value
    assert (fused - exact).square().mean() < 0.5 * (faulty - exact).square().mean()
