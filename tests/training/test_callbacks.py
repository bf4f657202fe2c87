"""How a run ends, and its progress: plain lines without a terminal, a bar with one."""

import io
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.data.batches.collate import TextBatch, collate_translation
from transformer.training import callbacks
from transformer.training.callbacks import Patience, ProgressReport, scored_tokens
from transformer.training.checkpoints import RunInterrupted, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train
from transformer.training.setup import best_and_stopping
from transformer.training.task import Task


def test_padding_is_no_token() -> None:
    batch = collate_translation([(0, [5], [5, 6]), (1, [5], [5, 6, 7, 8])], pad_id=0, bos_id=1, eos_id=2)
    assert int(scored_tokens(batch)) == 3 + 5
    scored = torch.tensor([[True, True], [True, False]])
    assert int(scored_tokens(TextBatch(torch.zeros(2), scored.long(), scored.long(), scored))) == 3


def test_lines_without_a_terminal(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = {**ProgressReport.__init__.__kwdefaults__, "plain_every_n_steps": 2}
    monkeypatch.setattr(ProgressReport.__init__, "__kwdefaults__", defaults)
    out = io.StringIO()
    changes = {"trainer.max_steps": 5, "trainer.accumulate_grad_batches": 3, "validation.num_shown": 0}
    changes |= {"scheduler.warmup_steps": 4, "optimizer.learning_rate": 0.4}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, Console(file=out, width=200))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("step ")]
    assert len(lines) == 2
    for step, rate, line in ((2, "2.00e-01", lines[0]), (4, "4.00e-01", lines[1])):
        shown = rf"step {step}/5  loss \d+\.\d{{3}}  lr {re.escape(rate)}  ([\d,]+) tokens/s  left \d:\d\d:\d\d"
        found = re.fullmatch(shown, line)
        assert found, line
        assert float(line.split("  ")[1].split()[1]) > 1
        assert int(found[1].replace(",", "")) > 0


def test_a_bar_with_a_terminal(run_settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    train(TrainConfig.from_plain(run_settings("text")), tmp_path, console)
    assert "4/4" in out.getvalue()
    assert "tokens/s" in out.getvalue()
    assert not re.search(r"^step \d/4  loss", out.getvalue(), re.MULTILINE)


def test_a_run_that_fails_gives_the_terminal_back(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Task, "configure_gradient_clipping", fail)
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    for number in range(2):  # while one bar is alive, there can be no second
        with pytest.raises(ZeroDivisionError):
            train(TrainConfig.from_plain(run_settings("text")), tmp_path / str(number), console)


class Clock:
    """Stands still but for one second a batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.batches, self.interrupt_at = 1000.0, 0, 0
        original = Task.training_step

        def ticking(task: Task, batch: Any, batch_idx: int) -> torch.Tensor:
            self.now += 1
            self.batches += 1
            if self.batches == self.interrupt_at:
                signal.raise_signal(signal.SIGINT)
            return original(task, batch, batch_idx)

        monkeypatch.setattr(Task, "training_step", ticking)
        clocks = SimpleNamespace(monotonic=lambda: self.now, perf_counter=time.perf_counter)
        monkeypatch.setattr(callbacks, "time", clocks)


LIMITED = {
    "trainer.max_steps": 20,
    "trainer.max_time": "00:00:00:10",
    "trainer.accumulate_grad_batches": 4,
    "validation.every_n_steps": 50,
}


def validated_steps(folder: Path) -> list[Any]:
    return [entry["step"] for entry in read_history(folder / "metrics.jsonl") if "validation/loss" in entry]


def test_time_that_is_up_lets_the_step_end_and_is_followed_by_a_validation(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds are over in the third window of four batches; what comes before the first does not count."""
    clock = Clock(monkeypatch)
    original = Task.setup

    def slow(self: Task, stage: str) -> None:
        clock.now += 60
        original(self, stage)

    monkeypatch.setattr(Task, "setup", slow)
    result = train(TrainConfig.from_plain(run_settings("text", LIMITED)), tmp_path, Console(quiet=True))
    assert (result.steps, clock.batches) == (3, 12)
    assert validated_steps(tmp_path) == [3]
    assert load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["global_step"] == 3


def test_a_resumed_run_has_the_time_that_was_left(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    clock.interrupt_at = 2
    config = TrainConfig.from_plain(run_settings("text", LIMITED))
    with pytest.raises(RunInterrupted):
        train(config, tmp_path, Console(quiet=True))
    assert clock.batches == 4
    clock.now += 5000  # between the two, nothing is counted
    result = train(config, tmp_path, Console(quiet=True), resume=True)
    assert (result.steps, clock.batches) == (3, 12)
    assert validated_steps(tmp_path) == [3]


def test_without_a_time_limit_the_last_step_is_the_end(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    changes = {**LIMITED, "trainer.max_time": None, "trainer.max_steps": 4}
    result = train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, Console(quiet=True))
    assert (result.steps, clock.batches) == (4, 16)
    assert validated_steps(tmp_path) == [4]


def test_patience_is_that_of_the_settings_also_when_a_run_with_another_is_resumed(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def stopping(patience: int) -> Patience:
        settings = run_settings("text", {"early_stopping": {"patience": patience}})
        _, callback = best_and_stopping(TrainConfig.from_plain(settings), tmp_path)
        assert isinstance(callback, Patience)
        return callback

    first, resumed = stopping(2), stopping(7)
    first.wait_count, first.best_score = 1, torch.tensor(0.5)
    resumed.load_state_dict(first.state_dict())
    assert (resumed.patience, resumed.wait_count, resumed.best_score) == (7, 1, torch.tensor(0.5))
