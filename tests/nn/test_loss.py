"""Chunked, label-smoothed cross-entropy of a vocabulary projection."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from transformer.nn.loss import CPU_CHUNK_ELEMENTS, cross_entropy

BATCH, LENGTH, WIDTH, VOCAB = 3, 5, 4, 7
ALL, ONE_ROW, UNEVEN = CPU_CHUNK_ELEMENTS, 1, 4 * VOCAB + 3


def _inputs(dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(BATCH, LENGTH, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(VOCAB, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    labels = torch.randint(VOCAB, (BATCH, LENGTH), generator=generator)
    scored = torch.arange(LENGTH)[None] < torch.tensor([5, 2, 4])[:, None]
    labels[~scored] = -100
    return hidden, weight, labels, scored


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("chunk_elements", [ALL, ONE_ROW, UNEVEN])
def test_values_and_gradients_equal_torch_cross_entropy(smoothing, chunk_elements):
    hidden, weight, labels, scored = _inputs()
    sums = cross_entropy(hidden, weight, labels, scored, label_smoothing=smoothing, chunk_elements=chunk_elements)
    (sums.loss * 0.3).backward()
    own = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    logits = (hidden @ weight.T).flatten(0, 1)
    expected = F.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing, reduction="sum")
    (expected * 0.3).backward()
    assert sums.loss.item() == pytest.approx(expected.item(), abs=1e-12)
    nll = F.cross_entropy(logits, labels.flatten(), reduction="sum")
    assert sums.nll.item() == pytest.approx(nll.item(), abs=1e-12)
    assert not sums.nll.requires_grad
    assert (sums.num_tokens.item(), sums.num_tokens.dtype) == (11, torch.int64)
    assert (own[0] - hidden.grad).abs().max() < 1e-12
    assert (own[1] - weight.grad).abs().max() < 1e-12


def test_gradient_equals_finite_differences():
    hidden, weight, labels, scored = _inputs()

    def loss(h, w):
        return cross_entropy(h, w, labels, scored, label_smoothing=0.2, chunk_elements=UNEVEN).loss

    assert torch.autograd.gradcheck(loss, (hidden, weight))


def test_each_input_may_be_the_only_one_that_needs_a_gradient():
    hidden, weight, labels, scored = _inputs()
    cross_entropy(hidden, weight, labels, scored).loss.backward()
    alone, fixed_weight, *_ = _inputs()
    cross_entropy(alone, fixed_weight.detach(), labels, scored).loss.backward()
    assert torch.equal(alone.grad, hidden.grad)
    fixed_hidden, alone, *_ = _inputs()
    cross_entropy(fixed_hidden.detach(), alone, labels, scored).loss.backward()
    assert torch.equal(alone.grad, weight.grad)


def test_unscored_positions_get_exactly_zero_gradient_and_leave_no_trace():
    hidden, weight, labels, scored = _inputs()
    sums = cross_entropy(hidden, weight, labels, scored, label_smoothing=0.1)
    sums.loss.backward()
    assert hidden.grad[~scored].abs().max() == 0
    assert hidden.grad[scored].abs().min() > 0
    other = torch.where(scored[..., None], hidden.detach(), torch.tensor(1e6, dtype=torch.float64))
    changed = cross_entropy(other, weight, labels.masked_fill(~scored, 3), scored, label_smoothing=0.1)
    assert changed.loss.item() == sums.loss.item()


@pytest.mark.parametrize("label", [-100, -1, VOCAB, 10**9])
@pytest.mark.parametrize("chunk_elements", [ALL, UNEVEN])
def test_unscored_rows_contribute_nothing_whatever_their_label(label, chunk_elements):
    hidden, weight, labels, scored = _inputs()
    options = {"label_smoothing": 0.1, "chunk_elements": chunk_elements}
    sums = cross_entropy(hidden, weight, labels.masked_fill(~scored, label), scored, **options)
    sums.loss.backward()
    alone, alone_weight, *_ = _inputs()
    real = alone.detach()[scored][None].requires_grad_()
    every = torch.ones(1, 11, dtype=torch.bool)
    expected = cross_entropy(real, alone_weight, labels[scored][None], every, **options)
    expected.loss.backward()
    assert sums.loss.item() == pytest.approx(expected.loss.item(), abs=1e-12)
    assert sums.nll.item() == pytest.approx(expected.nll.item(), abs=1e-12)
    assert sums.num_tokens.item() == expected.num_tokens.item() == 11
    assert torch.equal(hidden.grad[~scored], torch.zeros(4, WIDTH, dtype=torch.float64))
    assert (hidden.grad[scored] - real.grad[0]).abs().max() < 1e-12
    assert (weight.grad - alone_weight.grad).abs().max() < 1e-12


def test_nothing_to_score_gives_zero_loss_and_zero_gradients():
    hidden, weight, labels, _ = _inputs()
    sums = cross_entropy(hidden, weight, labels, torch.zeros(BATCH, LENGTH, dtype=torch.bool))
    assert (sums.loss.item(), sums.nll.item(), sums.num_tokens.item()) == (0.0, 0.0, 0)
    sums.loss.backward()
    assert hidden.grad.abs().max() == 0
    assert weight.grad.abs().max() == 0


def test_logits_of_ten_thousand_do_not_overflow():
    hidden, weight = torch.tensor([[[1e4], [-1e4]]], requires_grad=True), torch.tensor([[1.0], [0.0], [-1.0]])
    sums = cross_entropy(hidden, weight, torch.tensor([[0, 0]]), torch.ones(1, 2, dtype=torch.bool))
    assert sums.loss.item() == 20_000.0
    sums.loss.backward()
    assert hidden.grad.isfinite().all()


def test_sums_are_in_float32_for_half_precision_and_in_float64_for_double():
    hidden, weight, labels, scored = _inputs(torch.bfloat16)
    sums = cross_entropy(hidden, weight, labels, scored)
    assert sums.loss.dtype == sums.nll.dtype == torch.float32
    sums.loss.backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16
    assert cross_entropy(*_inputs()).loss.dtype == torch.float64


def test_autocast_to_bfloat16_stays_close_to_float32():
    torch.manual_seed(0)
    hidden = torch.randn(8, 32, 64, requires_grad=True)
    weight = (torch.randn(100, 64) / 8).requires_grad_()
    labels, scored = torch.randint(100, (8, 32)), torch.rand(8, 32) < 0.8
    exact = cross_entropy(hidden, weight, labels, scored, label_smoothing=0.1)
    exact.loss.backward()
    gradients = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = cross_entropy(hidden, weight, labels, scored, label_smoothing=0.1, chunk_elements=5000)
    rounded.loss.backward()
    assert rounded.loss.dtype == torch.float32
    assert rounded.loss.item() == pytest.approx(exact.loss.item(), rel=2e-3)
    assert rounded.loss.item() != exact.loss.item()  # the products did run in 16 bits
    for own, reference in zip((hidden.grad, weight.grad), gradients, strict=True):
        assert own.dtype == torch.float32
        assert (own - reference).norm() < 0.02 * reference.norm()


def test_the_gradient_of_an_improbable_token_survives_products_in_float16():
    """A probability of e^-18.4 = 1.02e-8 is below float16's smallest number, 5.96e-8."""
    hidden, weight = torch.ones(1, 1, 1, requires_grad=True), torch.tensor([[18.4], [0.0]], requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = cross_entropy(hidden, weight, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool)).loss
    loss.backward()
    assert torch.tensor(1.02e-8, dtype=torch.float16).item() == 0
    assert weight.grad[1].item() == pytest.approx(1.02e-8, rel=0.02)
    assert weight.grad[0].item() == pytest.approx(-1.02e-8, rel=0.02, abs=2e-8)  # the difference of 1 and 1 - 1e-8


@pytest.mark.parametrize("size", [0.01, 3.0, 300.0])
def test_the_gradient_of_a_frequent_token_does_not_leave_float16(size):
    """4,000 rows of one label: its gradient, times what keeps small ones above zero, is a million and more."""
    torch.manual_seed(0)
    hidden = (size * torch.rand(4, 1000, 16)).requires_grad_()
    weight = (torch.randn(50, 16) / size / 8).requires_grad_()
    labels, scored = torch.full((4, 1000), 7), torch.ones(4, 1000, dtype=torch.bool)
    cross_entropy(hidden, weight, labels, scored).loss.backward()
    exact, weight.grad = weight.grad, None
    with torch.autocast("cpu", dtype=torch.float16):
        loss = cross_entropy(hidden, weight, labels, scored).loss
    loss.backward()
    assert (weight.grad - exact).norm() < 2e-3 * exact.norm()


def _largest_allocation(rows: int, vocab_size: int, chunk_elements: int) -> int:
    hidden, weight = (
        torch.randn(1, rows, 8, requires_grad=True),
        torch.randn(vocab_size, 8, requires_grad=True),
    )
    labels, scored = torch.randint(vocab_size, (1, rows)), torch.ones(1, rows, dtype=torch.bool)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        cross_entropy(
            hidden, weight, labels, scored, label_smoothing=0.1, chunk_elements=chunk_elements
        ).loss.backward()
    return max(event.cpu_memory_usage for event in profiler.events())


def test_no_tensor_of_all_logits_is_ever_allocated():
    rows, vocab_size = 512, 1000
    all_logits = rows * vocab_size * 4
    assert _largest_allocation(rows, vocab_size, chunk_elements=rows * vocab_size) >= all_logits
    assert _largest_allocation(rows, vocab_size, chunk_elements=16 * vocab_size) < all_logits / 8


def test_evaluation_computes_no_gradients():
    """A parameter keeps `requires_grad` under no_grad: products for its gradient would triple the work."""
    hidden, weight, labels, scored = _inputs()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        sums = cross_entropy(hidden, weight, labels, scored)
    assert sum(event.name == "aten::mm" for event in profiler.events()) == 1
    assert not sums.loss.requires_grad
    assert sums.loss.item() == cross_entropy(hidden, weight, labels, scored).loss.item()


def test_a_second_derivative_is_refused_rather_than_wrong():
    """The gradients are kept as constants: differentiating them again would miss the loss's curvature."""
    hidden, weight, labels, scored = _inputs()
    squared = cross_entropy(hidden, weight, labels, scored).loss.square()
    (gradient,) = torch.autograd.grad(squared, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary():
    hidden, weight, labels, scored = _inputs()
    sums = cross_entropy(torch.zeros_like(hidden), weight, labels, scored, label_smoothing=0.3)
    assert sums.loss.item() == pytest.approx(11 * math.log(7), abs=1e-12)
    assert sums.nll.item() == pytest.approx(11 * math.log(7), abs=1e-12)


def test_shapes_that_do_not_fit_and_marks_that_are_no_truth_values_are_refused():
    hidden, weight, labels, scored = _inputs()
    with pytest.raises(ValueError, match=r"shape \(3, 5\) of the hidden states, but have \(3, 4\) and \(3, 5\)"):
        cross_entropy(hidden, weight, labels[:, :4], scored)
    with pytest.raises(ValueError, match=r"but have \(3, 5\) and \(3, 5\) \(torch.int64\)"):
        cross_entropy(hidden, weight, labels, scored.long())  # would be taken for row numbers
