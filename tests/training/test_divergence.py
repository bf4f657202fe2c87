"""A run that diverges: bad updates are skipped, then it goes back, then it stops; killed and resumed, just the same."""

import io
import itertools
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from transformer.nn.loss import LossSum
from transformer.training.checkpoints import RunInterrupted, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.language_model import LanguageModelTask
from transformer.training.run import train

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


class KilledError(Exception):
    """Stands in for the end of the process."""


class Spoiler:
    """Multiplies the loss of chosen batches, and remembers the weights before every batch."""

    def __init__(self, patch: pytest.MonkeyPatch, factors: dict[int, float]) -> None:
        self.weights: dict[int, Tensor] = {}
        self.updates: dict[int, float] = {}
        self.kill_at = self.interrupt_at = -1
        self._factor = 1.0
        step, loss = LanguageModelTask.training_step, LanguageModelTask.loss

        def training_step(task: LanguageModelTask, batch: Any, batch_idx: int) -> Tensor:
            self.weights[batch_idx] = torch.cat([p.detach().flatten() for p in task.parameters()])
            states = list(task.trainer.optimizers[0].state.values())
            self.updates[batch_idx] = float(states[0]["step"]) if states else 0.0
            if batch_idx == self.kill_at:
                raise KilledError
            if batch_idx == self.interrupt_at:
                signal.raise_signal(signal.SIGINT)
            self._factor = factors.get(batch_idx, 1.0)
            return step(task, batch, batch_idx)

        def spoiled(task: LanguageModelTask, batch: Any) -> LossSum:
            total = loss(task, batch)
            factor = self._factor if task.training else 1.0
            return total._replace(loss=total.loss * factor, nll=total.nll * factor)

        patch.setattr(LanguageModelTask, "training_step", training_step)
        patch.setattr(LanguageModelTask, "loss", spoiled)


def events(folder: Path) -> list[dict[str, float]]:
    kinds = {"skipped_updates", "rolled_back_to"}
    return [entry for entry in read_history(folder / "metrics.jsonl") if kinds & entry.keys()]


@pytest.mark.parametrize("factor", [math.nan, math.inf, 50.0], ids=["nan", "inf", "exploding"])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_bad_update_is_skipped_and_told(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, clip: Any, accumulate: int
) -> None:
    changes = {"trainer.max_steps": 5, "trainer.gradient_clip_val": clip, "validation.every_n_steps": 5}
    changes |= {"trainer.accumulate_grad_batches": accumulate, "trainer.log_every_n_steps": 2}
    bad = 2 * accumulate  # the first batch of the third window
    spoiler = Spoiler(monkeypatch, {bad: factor})
    out = io.StringIO()
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, Console(file=out, width=200))
    before = [spoiler.weights[step * accumulate] for step in range(5)]
    assert [torch.equal(*pair) for pair in itertools.pairwise(before)] == [False, False, True, False]
    assert [spoiler.updates[step * accumulate] for step in range(5)] == [0, 1, 2, 2, 3]
    assert events(tmp_path) == [{"step": 4, "skipped_updates": 1}]
    [line] = [line for line in out.getvalue().splitlines() if "skipped" in line]
    assert line.startswith("step 4: skipped 1 update with a loss or gradient that is not finite, or a loss above ")
    assert torch.cat([p.flatten() for p in load_weights(tmp_path).values()]).isfinite().all()


def load_weights(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = load_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
    return weights


def test_switched_off_every_update_is_made(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiler = Spoiler(monkeypatch, {1: math.nan})
    changes = {"divergence": None, "trainer.max_steps": 3, "validation.every_n_steps": 9, "validation.num_shown": 0}
    with pytest.raises(ValueError, match="the run has diverged: `validation/loss` was never a finite number"):
        train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert spoiler.weights[2].isnan().any()


BACK: dict[str, Any] = {
    "trainer.max_steps": 14,
    "validation.every_n_steps": 20,
    "checkpoint.every_n_steps": 5,
    "divergence": {"max_skips": 3},
    "model.dropout": 0.2,
}
THREE = dict.fromkeys((6, 7, 8), math.nan)  # steps 7, 8 and 9


@pytest.mark.parametrize("ema", [False, True])
def test_after_some_skips_the_run_goes_back_and_on_with_other_batches(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: bool
) -> None:
    spoiler = Spoiler(monkeypatch, THREE)
    out = io.StringIO()
    changes = BACK | ({"ema": {"decay": 0.5}} if ema else {})
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, Console(file=out, width=200))
    assert torch.equal(spoiler.weights[9], spoiler.weights[5])  # before batch 5, five updates were made
    assert not torch.equal(spoiler.weights[8], spoiler.weights[5])
    assert [spoiler.updates[batch] for batch in range(5, 14)] == [5, 6, 6, 6, 5, 6, 7, 8, 9]
    entries = read_history(tmp_path / "metrics.jsonl")
    assert events(tmp_path)[-1] == {"step": 9, "rolled_back_to": 5}
    rates = {entry["step"]: entry["learning_rate"] for entry in entries if "learning_rate" in entry}
    assert list(rates) == list(range(1, 15))
    assert rates[10] == pytest.approx(1e-2 * math.sqrt(2 / 10), rel=1e-12)  # the schedule goes on
    assert "step 9: 3 updates skipped in a row; back to the weights of step 5 and on with other" in out.getvalue()
    if ema:
        average = spoiler.weights[1]
        for step in range(2, 6):
            average = average.lerp(spoiler.weights[step], 0.5)
        for step in range(10, 14):  # of the step before, the weights stand before this batch
            average = average.lerp(spoiler.weights[step], 0.5)
        stored = load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
        raw = torch.cat([stored["raw_weights"][name].flatten() for name in names(stored)])
        average = average.lerp(raw, 0.5)
        found = torch.cat([stored["state_dict"][name].flatten() for name in names(stored)])
        torch.testing.assert_close(found, average, rtol=1e-6, atol=1e-7)


def names(checkpoint: dict[str, Any]) -> list[str]:
    """The weights in the order of the model's parameters, tied ones once."""
    seen: set[int] = set()
    chosen = []
    for name, weight in checkpoint["state_dict"].items():
        if weight.data_ptr() not in seen:
            seen.add(weight.data_ptr())
            chosen.append(name)
    return chosen


@pytest.mark.parametrize("ema", [False, True])
def test_a_run_that_goes_back_is_killed_and_resumed_to_the_same_end(
    run_settings: Settings, tmp_path: Path, ema: bool
) -> None:
    changes = BACK | ({"ema": {"decay": 0.5, "start_step": 2}} if ema else {})
    config = TrainConfig.from_plain(run_settings("text", changes))

    def run(name: str, *, kill: int = -1, interrupt: int = -1, resume: bool = False) -> None:
        with pytest.MonkeyPatch.context() as patch:
            spoiler = Spoiler(patch, THREE)
            spoiler.kill_at, spoiler.interrupt_at = kill, interrupt
            train(config, tmp_path / name, QUIET, resume=resume)

    run("whole")
    for batch in (5, 6, 7, 8, 9, 11):
        with pytest.raises(KilledError):
            run(f"killed-{batch}", kill=batch)
        run(f"killed-{batch}", resume=True)
    for batch in (5, 7):  # saved at step 6, in good order, and at step 8
        with pytest.raises(RunInterrupted):
            run(f"stopped-{batch}", interrupt=batch)
        run(f"stopped-{batch}", resume=True)
    with pytest.raises(RunInterrupted):
        run("twice", interrupt=5)
    with pytest.raises(RunInterrupted):
        run("twice", interrupt=7, resume=True)
    run("twice", resume=True)
    whole = load_checkpoint(tmp_path / "whole" / "checkpoints" / "last.ckpt")
    for folder in tmp_path.iterdir():
        if not folder.is_dir() or folder.name == "whole":
            continue
        other = load_checkpoint(folder / "checkpoints" / "last.ckpt")
        for kind in ("state_dict", "raw_weights") if ema else ("state_dict",):
            assert all(torch.equal(whole[kind][name], other[kind][name]) for name in whole[kind]), folder.name
        assert read_history(folder / "metrics.jsonl") == read_history(tmp_path / "whole" / "metrics.jsonl")
        files = [sorted(p.name for p in (run / "checkpoints").iterdir()) for run in (folder, tmp_path / "whole")]
        assert files[0] == files[1]


DIVERGED: dict[str, Any] = {
    "trainer.max_steps": 40,
    "validation.every_n_steps": 4,
    "checkpoint.every_n_steps": 100,
    "divergence": {"max_skips": 2, "max_rollbacks": 2},
}


def test_a_run_that_diverges_again_and_again_stops_and_keeps_its_best(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, dict.fromkeys(range(5, 40), math.nan))
    config = TrainConfig.from_plain(run_settings("text", DIVERGED))
    with pytest.raises(ValueError, match="the run has diverged") as caught:
        train(config, tmp_path, QUIET)
    best = tmp_path / "checkpoints" / "best-step=4.ckpt"
    assert str(caught.value).startswith(
        "the run has diverged: at step 11 after 2 roll-backs, 2 updates in a row came with a loss or gradient that is "
        "not finite, or a loss above "
    )
    assert str(caught.value).endswith(
        "Start anew with a smaller optimizer.learning_rate or a longer scheduler.warmup_steps. The best weights are "
        f"kept in {best}."
    )
    assert load_checkpoint(best)["global_step"] == 4
    assert [entry for entry in events(tmp_path) if "rolled_back_to" in entry] == [
        {"step": 7, "rolled_back_to": 4},
        {"step": 9, "rolled_back_to": 4},
    ]


def test_the_second_time_it_goes_back_to_the_best(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint before an explosion may be part of it."""
    spoiled = (9, 10, 14, 15)  # saves at steps 4 (best), 7, 8 (a validation, not the best), 14
    Spoiler(monkeypatch, dict.fromkeys(spoiled, math.nan))
    given = iter([1.0, 2.0, 2.0, 2.0, 2.0])
    original = LanguageModelTask.report_loss

    def report(task: LanguageModelTask, nll_per_token: float) -> None:
        original(task, 9.0 if task.trainer.sanity_checking else next(given))

    monkeypatch.setattr(LanguageModelTask, "report_loss", report)
    changes = DIVERGED | {"trainer.max_steps": 18, "checkpoint.every_n_steps": 7}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert [entry for entry in events(tmp_path) if "rolled_back_to" in entry] == [
        {"step": 11, "rolled_back_to": 8},
        {"step": 16, "rolled_back_to": 4},
    ]


def test_a_checkpoint_of_weights_whose_updates_are_skipped_is_not_gone_back_to(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is saved at step 6, between skipped updates, may itself be what is wrong."""
    Spoiler(monkeypatch, dict.fromkeys((5, 6, 7), math.nan))
    changes = DIVERGED | {"trainer.max_steps": 10, "checkpoint.every_n_steps": 6, "divergence": {"max_skips": 3}}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert events(tmp_path)[-1] == {"step": 8, "rolled_back_to": 4}


def test_a_roll_back_long_ago_does_not_count(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = dict.fromkeys((5, 6, 15, 16, 25, 26), math.nan)
    limits = {"max_skips": 2, "max_rollbacks": 1}
    for number, recovery in enumerate((10, 9)):
        with pytest.MonkeyPatch.context() as patch:
            Spoiler(patch, bad)
            changes = DIVERGED | {"divergence": limits | {"recovery_steps": recovery}, "trainer.max_steps": 30}
            config = TrainConfig.from_plain(run_settings("text", changes))
            if recovery == 10:
                with pytest.raises(ValueError, match="at step 17 after 1 roll-back, 2 updates"):
                    train(config, tmp_path / str(number), QUIET)
            else:
                assert train(config, tmp_path / str(number), QUIET).steps == 30


def test_with_nothing_to_go_back_to_the_run_says_so(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiler(monkeypatch, dict.fromkeys(range(40), math.nan))
    with pytest.raises(ValueError, match=r"at step 2, 2 updates .* finite\. Start .* no checkpoint to go back to\.$"):
        train(TrainConfig.from_plain(run_settings("text", DIVERGED)), tmp_path, QUIET)
