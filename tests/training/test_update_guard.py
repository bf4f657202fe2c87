"""Which updates are skipped, and that nothing of them is left."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from transformer.training.muon import Muon
from transformer.training.update_guard import UpdateGuard


def one_muon(weights: list[nn.Parameter]) -> Optimizer:
    return Muon(
        [(weights[0], (3,))],
        [{"params": weights[1:], "lr": 0.1}],
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.1,
        betas=(0.9, 0.98),
        eps=1e-9,
        fused=True,
    )


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "adamw": lambda weights: AdamW(weights, lr=0.1, weight_decay=0.1, fused=False),
    "fused adamw": lambda weights: AdamW(weights, lr=0.1, weight_decay=0.1, fused=True),
    "sgd": lambda weights: SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.1),
    "muon": one_muon,
}


def states(optimizer: Optimizer, weights: list[nn.Parameter]) -> list[Tensor]:
    found = [torch.as_tensor(value) for weight in weights for _, value in sorted(optimizer.state[weight].items())]
    return [tensor.clone() for tensor in [*found, *(weight.detach() for weight in weights)]]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("known", [False, True], ids=["norm measured", "norm known"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_skipped_update_leaves_weights_and_moments(kind: str, bad: float, known: bool, device: str) -> None:
    """The same updates without the bad one between them end in the same weights."""
    ends = []
    for spoiled in (True, False):
        weights = [nn.Parameter(torch.ones(shape, device=device)) for shape in ((3, 2), (4,))]
        optimizer, guard = OPTIMIZERS[kind](weights), UpdateGuard(3.0)
        for step in range(4):
            if step == 2 and not spoiled:
                continue
            for weight in weights:
                weight.grad = torch.full_like(weight, 0.5 + step)
            assert weights[1].grad is not None
            if step == 2:
                weights[1].grad[3] = bad
            guard.add(torch.tensor(8.0, device=device), torch.tensor(4, device=device))
            norm = nn.utils.get_total_norm([w.grad for w in weights if w.grad is not None]) if known else None
            before = states(optimizer, weights)
            guard.judge(weights, optimizer, norm)
            optimizer.step()
            after = states(optimizer, weights)
            if step > 0:
                assert all(map(torch.equal, before, after)) == (step == 2)
        ends.append(states(optimizer, weights))
        assert guard.read() == (2.0, 1 if spoiled else 0, 0)
    assert all(map(torch.equal, *ends))


def judged(losses: list[float], factor: float = 3.0, tokens: int = 4) -> list[bool]:
    """Which of the updates with these losses per token were made."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer, guard, made = SGD([weight], lr=1.0), UpdateGuard(factor), []
    for loss in losses:
        weight.grad = torch.ones(1)
        guard.add(torch.tensor(loss * tokens), torch.tensor(tokens))
        guard.judge([weight], optimizer, torch.tensor(1.0))
        before = weight.item()
        optimizer.step()
        made.append(weight.item() != before)
    return made


def test_a_loss_explodes_above_a_multiple_of_the_lowest_mean() -> None:
    assert judged([2.0, 5.9, 6.1, 2.0]) == [True, True, False, True]
    assert judged([2.0, 3.9, 4.1], factor=2.0) == [True, True, False]
    assert judged([math.nan, 9.0, math.inf, -math.inf, 9.0]) == [False, True, False, False, True]


def test_a_small_loss_counts_as_one_nat() -> None:
    assert judged([0.01, 0.5, 2.9, 3.1]) == [True, True, True, False]


def test_a_loss_that_rises_slowly_explodes_too() -> None:
    """Against the latest mean, which rises with it, a loss that grows by 1 % a step never would."""
    losses = [2 * 1.01**step for step in range(200)]
    assert judged(losses) == [loss <= 6 for loss in losses]


def test_the_mean_falls_by_a_hundredth_of_the_way() -> None:
    guard, weight = UpdateGuard(3.0), nn.Parameter(torch.zeros(1))
    for loss in (8.0, 4.0, 4.0, 9.0):
        weight.grad = torch.ones(1)
        guard.add(torch.tensor(loss), torch.tensor(1))
        guard.judge([weight], SGD([weight], lr=1.0), torch.tensor(1.0))
    assert guard.read().lowest_mean == pytest.approx(4 + 4 * 0.99**2, rel=1e-6)


def test_the_loss_of_a_window_is_that_of_all_its_tokens() -> None:
    """Two batches of 1 and 9 tokens, of 60 and 18 nats: 7.8 a token, not 31."""
    weight, guard = nn.Parameter(torch.zeros(1)), UpdateGuard(3.0)
    for nll, tokens in ((60.0, 1), (18.0, 9)):
        guard.add(torch.tensor(nll), torch.tensor(tokens))
    weight.grad = torch.ones(1)
    guard.judge([weight], SGD([weight], lr=1.0), None)
    assert guard.read().lowest_mean == pytest.approx(7.8)


def test_with_a_gradient_scaler_only_the_loss_counts() -> None:
    weight, guard = nn.Parameter(torch.zeros(1)), UpdateGuard(3.0, judge_gradients=False)
    for loss in (1.0, math.nan):
        weight.grad = torch.tensor([math.inf])
        guard.add(torch.tensor(loss), torch.tensor(1))
        guard.judge([weight], SGD([weight], lr=1.0), None)
    assert guard.read().skipped == 1


def test_a_row_is_counted_until_an_update_is_made_and_can_be_stored() -> None:
    weight, guard = nn.Parameter(torch.zeros(1)), UpdateGuard(3.0)
    rows = []
    for loss in (1.0, 9.0, 9.0, 1.0, 9.0):
        weight.grad = torch.ones(1)
        guard.add(torch.tensor(loss), torch.tensor(1))
        guard.judge([weight], SGD([weight], lr=1.0), None)
        rows.append(guard.read()[1:])
    assert rows == [(0, 0), (1, 1), (2, 2), (2, 0), (3, 1)]
    other = UpdateGuard(3.0)
    other.load_state_dict(guard.state_dict())
    assert other.read() == guard.read()
    other.restart()
    assert other.read() == (1.0, 3, 0)
    assert guard.read().in_a_row == 1
