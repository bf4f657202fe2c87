"""Reported faults of the loss's weighting, the schedule and the counting of steps, by the id of their case."""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from transformer.data.batches.buckets import BatchPlan, FixedBatches
from transformer.data.batches.collate import TranslationBatch, collate_translation
from transformer.data.datamodule import MappedTraining, RunData
from transformer.data.subwords.config import ByteConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import LossSum
from transformer.training.config import TrainConfig
from transformer.training.optimizer_config import InverseSqrtConfig
from transformer.training.schedules import rate_factor
from transformer.training.setup import build_trainer
from transformer.training.task import Task
from transformer.training.translation import TranslationTask

Settings = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


class Line(nn.Module):
    """One weight, at first 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float64))


class LineTask(Task):
    """The loss of a token is its slope times the weight, so the gradient is the mean slope of all tokens."""

    def loss(self, batch: Tensor) -> LossSum:
        loss = batch.sum() * self.model.weight
        return LossSum(loss, loss.detach(), torch.tensor(batch.numel()))


class Collated(Dataset[Any]):
    """Makes batches of given examples."""

    def __init__(self, rows: Sequence[Any], collate: Callable[..., Any]) -> None:
        self.rows, self.collate = rows, collate

    def __getitem__(self, plan: BatchPlan) -> Any:
        return self.collate([self.rows[number] for number in plan.examples])


def fixed_data(rows: Sequence[Any], batches: list[list[int]], collate: Callable[..., Any]) -> RunData:
    """Given examples in given batches, once, in that order."""
    examples = Collated(rows, collate)
    training = MappedTraining(examples, lambda ranks: FixedBatches(batches), "")
    return RunData(training, examples, batches[:1], seed=1, num_workers=0, max_batches=None, max_epochs=1)


class Outcome(NamedTuple):
    weight: float
    steps: int
    moves_of_the_scheduler: int
    rates: list[float]


@pytest.fixture
def descend(run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Plain gradient descent of a line, one batch for each list of slopes; learning rate 1 but for the schedule."""

    def run(slopes: list[list[float]], accumulate: int, schedule: dict[str, Any] | None = None) -> Outcome:
        changes: dict[str, Any] = {
            "trainer.max_steps": None,
            "trainer.max_epochs": 1,
            "trainer.precision": "64-true",
            "trainer.accumulate_grad_batches": accumulate,
            "trainer.gradient_clip_val": None,
            "scheduler": schedule or {"name": "constant"},
        }
        config = TrainConfig.from_plain(run_settings("translation", changes))
        rates: list[float] = []

        def sgd(_: Any, model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            optimizer.register_step_pre_hook(lambda used, *_: rates.append(used.param_groups[0]["lr"]))
            return optimizer

        monkeypatch.setattr("transformer.training.task.build_optimizer", sgd)
        task = LineTask(config, Line())
        rows = [torch.tensor(row, dtype=torch.float64) for row in slopes]
        data = fixed_data(rows, [[place] for place in range(len(rows))], lambda examples: examples[0])
        trainer = build_trainer(config, tmp_path, [])
        trainer.fit(task, datamodule=data)
        moves = trainer.lr_scheduler_configs[0].scheduler.last_epoch
        return Outcome(task.model.weight.item(), trainer.global_step, moves, rates)

    return run


# LOSS-03: one micro-batch with one token of loss 4, one with three tokens of loss 1.


@pytest.mark.parametrize(("slopes", "accumulate"), [([[4], [1, 1, 1]], 2), ([[1, 1, 1], [4]], 2), ([[4, 1, 1, 1]], 1)])
def test_LOSS_03_tokens_weigh_the_same_in_every_micro_batch(
    descend: Callable[..., Outcome], slopes: list[list[float]], accumulate: int
) -> None:
    outcome = descend(slopes, accumulate)
    assert outcome.weight == pytest.approx(-1.75, abs=1e-6)  # a mean of means is 2.5
    assert outcome.steps == 1


def test_LOSS_03_windows_do_not_share_their_counts(descend: Callable[..., Outcome]) -> None:
    outcome = descend([[4], [1, 1, 1], [2], [2, 2]], 2)
    assert outcome.weight == pytest.approx(-1.75 - 2, abs=1e-6)


def test_LOSS_03_gradients_do_not_depend_on_the_number_of_micro_batches(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    lengths = [2, 2, 2, 2, 16, 16, 16, 16]  # of the targets, with their end token
    rows = [(i, [5 + i, 6], [7 + (i + k) % 40 for k in range(length - 1)]) for i, length in enumerate(lengths)]

    def gradient(micro_batches: int) -> Tensor:
        size = len(rows) // micro_batches
        changes: dict[str, Any] = {
            "trainer.max_steps": 1,
            "trainer.precision": "64-true",
            "trainer.accumulate_grad_batches": micro_batches,
            "trainer.gradient_clip_val": None,
            "scheduler": {"name": "constant"},
            "validation.num_generated": 0,
            "label_smoothing": 0.1,
        }
        config = TrainConfig.from_plain(run_settings("translation", changes))
        torch.manual_seed(0)
        model = EncoderDecoder(config.model, tokenizer.vocab_size, tokenizer.vocab_size)
        before = torch.cat([p.detach().flatten().double() for p in model.parameters()])

        def collate(examples: Sequence[tuple[int, list[int], list[int]]]) -> TranslationBatch:
            return collate_translation(examples, pad_id=0, bos_id=1, eos_id=2)

        batches = [list(range(start, start + size)) for start in range(0, len(rows), size)]
        trainer = build_trainer(config, tmp_path, [])
        task = TranslationTask(config, model, tokenizer, [])
        trainer.fit(task, datamodule=fixed_data(rows, batches, collate))
        assert trainer.global_step == 1
        return before - torch.cat([p.detach().flatten() for p in model.parameters()])

    def sgd(_: Any, model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1.0)

    monkeypatch.setattr("transformer.training.task.build_optimizer", sgd)
    whole = gradient(1)
    assert whole.norm() > 0.1
    for micro_batches in (2, 4):
        assert (gradient(micro_batches) - whole).norm() < 1e-6 * whole.norm()


# LOSS-06: the last, shorter window. Every batch has gradient 1.


@pytest.mark.parametrize(("batches", "accumulate", "steps"), [(5, 2, 3), (1, 4, 1), (4, 2, 2)])
def test_LOSS_06_a_shorter_last_window_is_a_whole_step(
    descend: Callable[..., Outcome], batches: int, accumulate: int, steps: int
) -> None:
    outcome = descend([[1.0]] * batches, accumulate)
    assert outcome.weight == pytest.approx(-steps, abs=1e-6)
    assert (outcome.steps, outcome.moves_of_the_scheduler) == (steps, steps)


# LOSS-09: "Noam", d 512, warm-up 4000: rate 512^-0.5 * min(s^-0.5, s * 4000^-1.5) for update s.
NOAM = {1: 1.746928e-07, 2: 3.493856e-07, 4000: 6.987712e-04, 4001: 6.986839e-04, 8000: 4.941059e-04}


def test_LOSS_09_published_rates() -> None:
    peak = 512**-0.5 * 4000**-0.5
    factor = rate_factor(InverseSqrtConfig(name="inverse_sqrt", warmup_steps=4000), 100_000)
    assert {step: float(f"{peak * factor(step):.6e}") for step in NOAM} == NOAM
    rates = [factor(step) for step in range(1, 4001)]
    assert all(earlier < later for earlier, later in itertools.pairwise(rates))


@pytest.mark.parametrize("warmup", [0, 1])
def test_LOSS_09_without_warm_up_the_first_rate_is_the_peak(warmup: int) -> None:
    factor = rate_factor(InverseSqrtConfig(name="inverse_sqrt", warmup_steps=warmup), 100)
    assert [factor(1), factor(4)] == [1.0, 0.5]


@pytest.mark.parametrize("accumulate", [1, 16])
def test_LOSS_09_the_schedule_counts_optimizer_steps(descend: Callable[..., Outcome], accumulate: int) -> None:
    outcome = descend([[0.0]] * (4 * accumulate), accumulate, {"name": "inverse_sqrt", "warmup_steps": 2})
    assert outcome.rates == pytest.approx([0.5, 1.0, math.sqrt(2 / 3), math.sqrt(2 / 4)], abs=1e-12)
