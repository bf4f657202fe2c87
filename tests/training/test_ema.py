"""The exponential moving average of the weights: its value, who sees it, and that resuming is exact."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from transformer.training.checkpoints import RunInterrupted, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.language_model import LanguageModelTask
from transformer.training.run import RunResult, train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


def flat(task: Task) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in task.parameters()])


class Seen:
    """The weights before every batch, in every validation, and while samples are made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.training: list[Tensor] = []
        self.validation: list[Tensor] = []
        self.samples: list[Tensor] = []
        step, validate, sample = Task.training_step, Task.validation_step, LanguageModelTask._sample

        def training_step(task: Task, batch: Any, batch_idx: int) -> Tensor:
            self.training.append(flat(task))
            return step(task, batch, batch_idx)

        def validation_step(task: Task, batch: Any, batch_idx: int) -> None:
            if not task.trainer.sanity_checking and batch_idx == 0:
                self.validation.append(flat(task))
            validate(task, batch, batch_idx)

        def samples(task: LanguageModelTask, number: int) -> Any:
            if not task.trainer.sanity_checking:
                self.samples.append(flat(task))
            return sample(task, number)

        patch.setattr(Task, "training_step", training_step)
        patch.setattr(Task, "validation_step", validation_step)
        patch.setattr(LanguageModelTask, "_sample", samples)


def run(
    run_settings: Settings, folder: Path, patch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> tuple[Seen, RunResult]:
    seen = Seen(patch)
    given = {"trainer.max_steps": 6, "validation.every_n_steps": 3, "model.dropout": 0.2, **changes}
    return seen, train(TrainConfig.from_plain(run_settings("text", given)), folder, QUIET)


def stored(folder: Path, name: str, kind: str) -> Tensor:
    """The weights of a checkpoint in the order of the model's parameters; the tied output comes last and again."""
    state = load_checkpoint(folder / "checkpoints" / name)[kind]
    return torch.cat([tensor.flatten() for key, tensor in state.items() if key != "model.output.weight"])


@pytest.mark.parametrize(
    ("ema", "updates"),
    [
        ({"decay": 0.9}, (1, 2, 3, 4, 5, 6)),
        ({"decay": 0.5, "start_step": 2}, (2, 3, 4, 5, 6)),
        ({"decay": 0.5, "every_n_steps": 2}, (2, 4, 6)),
        ({"decay": 0.5, "start_step": 3, "every_n_steps": 2}, (4, 6)),
    ],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_average_is_that_computed_by_hand(
    run_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ema: dict[str, Any],
    updates: tuple[int, ...],
    accumulate: int,
) -> None:
    changes = {"ema": ema, "trainer.accumulate_grad_batches": accumulate}
    seen, result = run(run_settings, tmp_path, monkeypatch, changes)
    weights = [*seen.training[::accumulate], stored(tmp_path, "last.ckpt", "raw_weights")]  # after each step
    averages: dict[int, Tensor] = {}
    average = None
    for step in range(1, 7):
        if step in updates:
            latest = weights[step].double()
            average = latest if average is None else ema["decay"] * average + (1 - ema["decay"]) * latest
        averages[step] = weights[step].double() if average is None else average
    assert len(seen.validation) == 2
    for step, found in zip((3, 6), seen.validation, strict=True):
        torch.testing.assert_close(found.double(), averages[step], rtol=1e-5, atol=1e-7)
    assert all(map(torch.equal, seen.samples, seen.validation))
    assert torch.equal(stored(tmp_path, "last.ckpt", "state_dict"), seen.validation[1])
    assert result.best_step == 6
    bundled = torch.cat([parameter.flatten() for parameter in result.bundle.model.parameters()])
    assert torch.equal(bundled, seen.validation[1])


def test_training_goes_on_with_the_raw_weights(run_settings: Settings, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plain, _ = run(run_settings, tmp_path / "plain", patch, {})
    with pytest.MonkeyPatch.context() as patch:
        averaged, _ = run(run_settings, tmp_path / "averaged", patch, {"ema": {"decay": 0.9}})
    assert all(map(torch.equal, plain.training, averaged.training))
    assert len(plain.training) == 6
    assert not torch.equal(plain.validation[0], averaged.validation[0])
    assert "raw_weights" not in load_checkpoint(tmp_path / "plain" / "checkpoints" / "last.ckpt")


@pytest.mark.parametrize("start", [0, 3])
def test_a_stopped_run_goes_on_exactly(run_settings: Settings, tmp_path: Path, start: int) -> None:
    changes = {"trainer.max_steps": 7, "validation.every_n_steps": 3, "model.dropout": 0.2}
    changes["ema"] = {"decay": 0.7, "start_step": start}
    config = TrainConfig.from_plain(run_settings("text", changes))
    train(config, tmp_path / "whole", QUIET)
    for batch in (0, 1, 2, 4):
        folder = tmp_path / f"stopped-{batch}"
        original = Task.training_step

        def stopping(task: Task, examples: Any, batch_idx: int, at: int = batch, step: Any = original) -> Tensor:
            if batch_idx == at:
                signal.raise_signal(signal.SIGINT)
            result: Tensor = step(task, examples, batch_idx)
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Task, "training_step", stopping)
            with pytest.raises(RunInterrupted):
                train(config, folder, QUIET)
        train(config, folder, QUIET, resume=True)
        for name in ("last.ckpt", "best-step=7.ckpt"):
            for kind in ("state_dict", "raw_weights"):
                assert torch.equal(stored(folder, name, kind), stored(tmp_path / "whole", name, kind))
        histories = [read_history(path / "metrics.jsonl") for path in (folder, tmp_path / "whole")]
        assert histories[0] == histories[1]


def test_tied_weights_are_averaged_once(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(run_settings, tmp_path, monkeypatch, {"ema": {"decay": 0.9}})
    for kind in ("state_dict", "raw_weights"):
        state = load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")[kind]
        names = [name for name in state if state[name].data_ptr() == state["model.output.weight"].data_ptr()]
        assert len(names) == 2
