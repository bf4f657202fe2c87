"""Progress of a run: plain lines without a terminal, a bar with one."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.data.batching import TextBatch, collate_translation
from transformer.training.callbacks import ProgressReport, scored_tokens
from transformer.training.config import TrainConfig
from transformer.training.run import train
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
        assert re.fullmatch(rf"step {step}/5  loss \d+\.\d{{3}}  lr {re.escape(rate)}  [\d,]+ tokens/s", line), line
        assert float(line.split("  ")[1].split()[1]) > 1
        assert int(line.split()[-2].replace(",", "")) > 0


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
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Task, "on_before_optimizer_step", fail)
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    for number in range(2):  # while one bar is alive, there can be no second
        with pytest.raises(ZeroDivisionError):
            train(TrainConfig.from_plain(run_settings("text")), tmp_path / str(number), console)
