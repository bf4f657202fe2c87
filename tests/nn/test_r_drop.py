"""The loss of R-Drop, against the same thing written with torch's own functions."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from transformer.nn.loss import CPU_CHUNK_ELEMENTS, cross_entropy
from transformer.nn.r_drop import r_drop_cross_entropy

BATCH, LENGTH, WIDTH, VOCAB = 3, 5, 4, 7
ALL, ONE_ROW, UNEVEN = CPU_CHUNK_ELEMENTS, 1, 8 * VOCAB + 3


def _inputs(dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, BATCH, LENGTH, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(VOCAB, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    labels = torch.randint(VOCAB, (BATCH, LENGTH), generator=generator)
    scored = torch.arange(LENGTH)[None] < torch.tensor([5, 2, 4])[:, None]
    labels[~scored] = -100
    return hidden, weight, labels, scored


def _expected(hidden, weight, labels, scored, alpha, smoothing):
    """Half of equation 4 of the paper, and the mean of the plain negative log-likelihoods."""
    logits = hidden[:, scored] @ weight.T
    both = [F.cross_entropy(one, labels[scored], label_smoothing=smoothing, reduction="sum") for one in logits]
    plain = [F.cross_entropy(one, labels[scored], reduction="sum") for one in logits]
    first, second = logits.log_softmax(-1)
    # kl_div(q, p) is KL(p || q)
    divergence = F.kl_div(second, first, log_target=True, reduction="sum")
    divergence = divergence + F.kl_div(first, second, log_target=True, reduction="sum")
    return (sum(both) + alpha * divergence / 2) / 2, sum(plain) / 2


@pytest.mark.parametrize("alpha", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("chunk_elements", [ALL, ONE_ROW, UNEVEN])
def test_values_and_gradients_equal_plain_torch(alpha, smoothing, chunk_elements):
    hidden, weight, labels, scored = _inputs()
    sums = r_drop_cross_entropy(
        hidden, weight, labels, scored, alpha=alpha, label_smoothing=smoothing, chunk_elements=chunk_elements
    )
    (sums.loss * 0.3).backward()
    own = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    loss, nll = _expected(hidden, weight, labels, scored, alpha, smoothing)
    (loss * 0.3).backward()
    assert sums.loss.item() == pytest.approx(loss.item(), abs=1e-11)
    assert sums.nll.item() == pytest.approx(nll.item(), abs=1e-11)
    assert not sums.nll.requires_grad
    assert (sums.num_tokens.item(), sums.num_tokens.dtype) == (11, torch.int64)  # of one pass
    assert (own[0] - hidden.grad).abs().max() < 1e-12
    assert (own[1] - weight.grad).abs().max() < 1e-12


def test_gradient_equals_finite_differences():
    hidden, weight, labels, scored = _inputs()

    def loss(h, w):
        return r_drop_cross_entropy(h, w, labels, scored, alpha=5.0, label_smoothing=0.2, chunk_elements=UNEVEN).loss

    assert torch.autograd.gradcheck(loss, (hidden, weight))


def test_a_divergence_known_by_hand():
    """p1 = (3/4, 1/4) and p2 = (1/4, 3/4): both divergences are log(3) / 2."""
    hidden = torch.tensor([[[[math.log(3.0)]]], [[[0.0]]]], dtype=torch.float64)
    weight, three = torch.tensor([[1.0], [0.0]], dtype=torch.float64), math.log(3.0)
    hidden[1] = -three
    sums = r_drop_cross_entropy(hidden, weight, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool), alpha=8.0)
    mean_nll = (math.log(4 / 3) + math.log(4)) / 2
    assert sums.nll.item() == pytest.approx(mean_nll, abs=1e-12)
    assert sums.loss.item() == pytest.approx(mean_nll + 8 / 4 * three, abs=1e-12)


def test_two_equal_passes_have_the_loss_of_one():
    hidden, weight, labels, scored = _inputs()
    same = hidden.detach()[:1].expand(2, -1, -1, -1)
    for smoothing in (0.0, 0.1):
        sums = r_drop_cross_entropy(same, weight, labels, scored, alpha=5.0, label_smoothing=smoothing)
        one = cross_entropy(same[0], weight, labels, scored, label_smoothing=smoothing)
        assert sums.loss.item() == pytest.approx(one.loss.item(), abs=1e-12)
        assert sums.nll.item() == pytest.approx(one.nll.item(), abs=1e-12)
        assert sums.num_tokens.item() == one.num_tokens.item() == 11


def test_each_input_may_be_the_only_one_that_needs_a_gradient():
    hidden, weight, labels, scored = _inputs()
    r_drop_cross_entropy(hidden, weight, labels, scored, alpha=2.0).loss.backward()
    alone, fixed_weight, *_ = _inputs()
    r_drop_cross_entropy(alone, fixed_weight.detach(), labels, scored, alpha=2.0).loss.backward()
    assert torch.equal(alone.grad, hidden.grad)
    fixed_hidden, alone, *_ = _inputs()
    r_drop_cross_entropy(fixed_hidden.detach(), alone, labels, scored, alpha=2.0).loss.backward()
    assert torch.equal(alone.grad, weight.grad)


def test_unscored_positions_get_exactly_zero_gradient_and_leave_no_trace():
    hidden, weight, labels, scored = _inputs()
    sums = r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0, label_smoothing=0.1)
    sums.loss.backward()
    assert hidden.grad[:, ~scored].abs().max() == 0
    assert hidden.grad[:, scored].abs().min() > 0
    other = torch.where(scored[..., None], hidden.detach(), torch.randn(2, BATCH, LENGTH, WIDTH).double() * 1e3)
    changed = r_drop_cross_entropy(
        other, weight, labels.masked_fill(~scored, 3), scored, alpha=5.0, label_smoothing=0.1
    )
    assert changed.loss.item() == sums.loss.item()


def test_nothing_to_score_gives_zero_loss_and_zero_gradients():
    hidden, weight, labels, _ = _inputs()
    nothing = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    sums = r_drop_cross_entropy(hidden, weight, labels, nothing, alpha=5.0)
    assert (sums.loss.item(), sums.nll.item(), sums.num_tokens.item()) == (0.0, 0.0, 0)
    sums.loss.backward()
    assert hidden.grad.abs().max() == 0
    assert weight.grad.abs().max() == 0


def test_logits_of_ten_thousand_do_not_overflow():
    hidden = torch.tensor([[[[1e4]]], [[[-1e4]]]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0], [-1.0]])
    sums = r_drop_cross_entropy(hidden, weight, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool), alpha=4.0)
    assert sums.nll.item() == 10_000.0
    assert sums.loss.item() == 50_000.0  # and a divergence of 20,000 each way
    sums.loss.backward()
    assert hidden.grad.isfinite().all()


def test_sums_are_in_float32_for_half_precision_and_in_float64_for_double():
    hidden, weight, labels, scored = _inputs(torch.bfloat16)
    sums = r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0)
    assert sums.loss.dtype == sums.nll.dtype == torch.float32
    sums.loss.backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16
    assert r_drop_cross_entropy(*_inputs(), alpha=5.0).loss.dtype == torch.float64


def test_the_gradient_of_a_frequent_token_does_not_leave_float16():
    torch.manual_seed(0)
    first = 3 * torch.rand(4, 1000, 16)
    hidden = torch.stack([first, first + 0.1 * torch.randn_like(first)]).requires_grad_()
    weight = (torch.randn(50, 16) / 8).requires_grad_()
    labels, scored = torch.full((4, 1000), 7), torch.ones(4, 1000, dtype=torch.bool)
    r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0).loss.backward()
    exact, weight.grad = weight.grad, None
    with torch.autocast("cpu", dtype=torch.float16):
        loss = r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0).loss
    loss.backward()
    assert (weight.grad - exact).norm() < 5e-3 * exact.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_stays_close_to_float32(dtype):
    torch.manual_seed(0)
    first = torch.randn(8, 32, 64)
    hidden = torch.stack([first, first + 0.3 * torch.randn(8, 32, 64)]).requires_grad_()
    weight = (torch.randn(100, 64) / 8).requires_grad_()
    labels, scored = torch.randint(100, (8, 32)), torch.rand(8, 32) < 0.8
    exact = r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0, label_smoothing=0.1)
    exact.loss.backward()
    gradients = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    with torch.autocast("cpu", dtype=dtype):
        rounded = r_drop_cross_entropy(
            hidden, weight, labels, scored, alpha=5.0, label_smoothing=0.1, chunk_elements=5000
        )
    rounded.loss.backward()
    assert rounded.loss.dtype == torch.float32
    assert rounded.loss.item() == pytest.approx(exact.loss.item(), rel=2e-3)
    assert rounded.loss.item() != exact.loss.item()  # the products did run in 16 bits
    for own, reference in zip((hidden.grad, weight.grad), gradients, strict=True):
        assert own.dtype == torch.float32
        assert (own - reference).norm() < 0.02 * reference.norm()


def _largest_allocation(rows, vocab_size, chunk_elements):
    hidden = torch.randn(2, 1, rows, 8, requires_grad=True)
    weight = torch.randn(vocab_size, 8, requires_grad=True)
    labels, scored = torch.randint(vocab_size, (1, rows)), torch.ones(1, rows, dtype=torch.bool)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        r_drop_cross_entropy(
            hidden, weight, labels, scored, alpha=5.0, label_smoothing=0.1, chunk_elements=chunk_elements
        ).loss.backward()
    return max(event.cpu_memory_usage for event in profiler.events())


def test_no_tensor_of_all_logits_is_ever_allocated():
    rows, vocab_size = 512, 1000
    logits = 2 * rows * vocab_size * 4
    assert _largest_allocation(rows, vocab_size, chunk_elements=2 * rows * vocab_size) >= logits
    assert _largest_allocation(rows, vocab_size, chunk_elements=32 * vocab_size) < logits / 8


def test_without_gradients_none_are_computed():
    hidden, weight, labels, scored = _inputs()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        sums = r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0)
    assert not any(event.name == "aten::scatter_add_" for event in profiler.events())
    assert not sums.loss.requires_grad
    assert sums.loss.item() == r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0).loss.item()


def test_a_second_derivative_is_refused_rather_than_wrong():
    hidden, weight, labels, scored = _inputs()
    squared = r_drop_cross_entropy(hidden, weight, labels, scored, alpha=5.0).loss.square()
    (gradient,) = torch.autograd.grad(squared, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_shapes_that_do_not_fit_and_marks_that_are_no_truth_values_are_refused():
    hidden, weight, labels, scored = _inputs()
    with pytest.raises(ValueError, match=r"but have \(3, 5, 4\), \(3, 5\) and \(3, 5\)"):
        r_drop_cross_entropy(hidden[0], weight, labels, scored, alpha=1.0)
    with pytest.raises(ValueError, match=r"but have \(2, 3, 5, 4\), \(3, 4\) and \(3, 5\)"):
        r_drop_cross_entropy(hidden, weight, labels[:, :4], scored, alpha=1.0)
    with pytest.raises(ValueError, match=r"\(3, 5\) \(torch.int64\)"):
        r_drop_cross_entropy(hidden, weight, labels, scored.long(), alpha=1.0)
