"""Reported faults of resuming, of checkpoint files and of monitored metrics, by the id of their case."""

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import RunResult, nothing_to_do, train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


# CKPT-04: train 20 steps with a warm-up of 10, resume with other limits.


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "warmup_stable_decay"])
def test_CKPT_04_resuming_a_finished_run(run_settings: Settings, tmp_path: Path, schedule: str) -> None:
    def config(steps: int) -> TrainConfig:
        changes = {
            "trainer.max_steps": steps,
            "scheduler": {"name": schedule, "warmup_steps": 10},
            "validation.every_n_steps": 10,
            "checkpoint.every_n_steps": 20,
        }
        return TrainConfig.from_plain(run_settings("text", changes))

    folder = tmp_path / "run"
    train(config(20), folder, QUIET)
    for reached in (10, 20):
        message = nothing_to_do(config(reached), folder)
        assert message is not None
        assert f"already has 20 optimizer steps, and `trainer.max_steps` is {reached}: nothing to do" in message
    assert nothing_to_do(config(30), folder) is None
    resumed = train(config(30), folder, QUIET, resume=True)
    assert resumed.steps == 30
    entries = [entry for entry in read_history(folder / "metrics.jsonl") if "train/loss" in entry]
    assert [entry["step"] for entry in entries] == list(range(1, 31))
    expected = {
        "inverse_sqrt": math.sqrt(10 / 21),
        "cosine": 0.1 + 0.9 * (1 + math.cos(math.pi * 11 / 20)) / 2,
        "warmup_stable_decay": 10 / 15,  # of 15 decaying updates, the last has 1 / 15
    }
    assert entries[20]["learning_rate"] == pytest.approx(0.01 * expected[schedule], rel=1e-12)
    if schedule == "inverse_sqrt":  # the only one of the three that does not know the end
        whole = train(config(30), tmp_path / "whole", QUIET)
        assert whole.steps == 30
        states = [load_checkpoint(run / "checkpoints" / "last.ckpt") for run in (folder, tmp_path / "whole")]
        for name, tensor in states[0]["state_dict"].items():
            torch.testing.assert_close(tensor, states[1]["state_dict"][name], rtol=0, atol=1e-6)


# CKPT-06: checkpoints are plain data.


@pytest.mark.parametrize("kind", ["translation", "text"])
def test_CKPT_06_own_checkpoints_load_without_unpickling(run_settings: Settings, tmp_path: Path, kind: str) -> None:
    changes = {"trainer.max_steps": 2, "early_stopping": {"monitor": "validation/perplexity"}}
    train(TrainConfig.from_plain(run_settings(kind, changes)), tmp_path, QUIET)
    files = sorted((tmp_path / "checkpoints").iterdir())
    assert [file.name for file in files] == ["best-step=2.ckpt", "last.ckpt"]
    for file in files:
        assert torch.load(file, weights_only=True)["global_step"] == 2


class Malice:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.marker, "run"))


@pytest.mark.parametrize("kind", ["torch", "pickle", "truncated", "text", "key", "index", "empty", "missing"])
def test_CKPT_06_other_files_are_refused(run_settings: Settings, tmp_path: Path, kind: str) -> None:
    marker, path = tmp_path / "marker", tmp_path / "run" / "checkpoints" / "last.ckpt"
    path.parent.mkdir(parents=True)
    match kind:
        case "torch":
            torch.save({"state_dict": {}, "global_step": 1, "more": Malice(marker)}, path)
        case "pickle":
            path.write_bytes(pickle.dumps(Malice(marker), protocol=2))
        case "truncated":
            torch.save({"state_dict": {"weight": torch.zeros(1000)}}, path)
            path.write_bytes(path.read_bytes()[:2000])
        case "text":
            path.write_text("not a checkpoint\n")
        case "key":
            path.write_text("Padding\n")  # begins with an instruction that torch's reader knows
        case "index":
            path.write_text("a checkpoint\n")
        case "empty":
            path.write_bytes(b"")
    config = TrainConfig.from_plain(run_settings("text"))
    with pytest.raises(ValueError, match=r"last\.ckpt") as caught:
        train(config, tmp_path / "run", QUIET, resume=True)
    assert str(path) in str(caught.value)
    assert not marker.exists()
    assert not (tmp_path / "run" / "tokenizers").exists()


def test_CKPT_06_the_malicious_file_would_have_worked(tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "file.ckpt"
    torch.save({"more": Malice(marker)}, path)
    torch.load(path, weights_only=False)
    assert marker.read_text() == "run"


# CFG-02: the monitored metric.


@pytest.mark.parametrize("where", ["checkpoint", "early_stopping"])
def test_CFG_02_an_unknown_metric_is_refused_at_start(run_settings: Settings, where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainConfig.from_plain(run_settings("translation", {where: {"monitor": "validation/blue"}}))
    assert f"`{where}.monitor` must be one of validation/loss, validation/perplexity" in str(caught.value)
    assert "but is 'validation/blue'" in str(caught.value)


def test_CFG_02_an_empty_validation_file_is_refused_at_start(run_settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    changes = {"data.validation_fraction": None, "data.validation": "empty.txt"}
    config = TrainConfig.from_plain(run_settings("text", changes))
    with pytest.raises(ValueError, match=r"The file '.*empty\.txt' is empty"):
        train(config, tmp_path / "run", QUIET)
    assert not (tmp_path / "run").exists()


def test_CFG_02_empty_validation_files_of_pairs_are_refused_at_start(run_settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "empty.de").write_text("")
    (tmp_path / "some.en").write_text("a\nb\n")
    plain = run_settings("translation")
    plain["data"] = {"name": "parallel_text", "folder": str(tmp_path), "train_source": "some.en"}
    plain["data"] |= {"train_target": "some.en", "validation_source": "some.en", "validation_target": "empty.de"}
    with pytest.raises(ValueError, match=r"'.*empty\.de' is empty"):
        train(TrainConfig.from_plain(plain), tmp_path / "run", QUIET)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def with_losses(run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunResult]:
    """Train a model whose validations find the given losses, every ``every`` steps, and stop early."""

    def run(losses: list[float], patience: int, *, every: int = 1, steps: int = 20) -> RunResult:
        given = list(losses)
        original = Task.report_loss

        def report(self: Task, nll_per_token: float) -> None:
            original(self, nll_per_token if self.trainer.sanity_checking else given.pop(0))

        monkeypatch.setattr(Task, "report_loss", report)
        changes = {
            "trainer.max_steps": steps,
            "validation.every_n_steps": every,
            "validation.num_shown": 0,
            "early_stopping": {"monitor": "validation/loss", "patience": patience},
        }
        config = TrainConfig.from_plain(run_settings("text", changes))
        return train(config, tmp_path / "run", Console(file=console))

    console = io.StringIO()
    return run


def test_CFG_02_the_sequence_stops_after_the_fourth_value(with_losses: Callable[..., RunResult]) -> None:
    result = with_losses([5, 4, 4.5, 4.6, 4.7], patience=2)
    assert (result.steps, result.best_step, result.best_value) == (4, 2, 4.0)


def test_CFG_02_patience_counts_validations_not_steps(with_losses: Callable[..., RunResult]) -> None:
    result = with_losses([5, 4, 4.5, 4.6], patience=2, every=4)
    assert (result.steps, result.best_step, result.best_value) == (16, 8, 4.0)


def test_CFG_02_a_run_that_improves_is_not_stopped(with_losses: Callable[..., RunResult]) -> None:
    result = with_losses([5, 4, 3], patience=1, every=3, steps=8)
    assert (result.steps, result.best_step, result.best_value) == (8, 8, 3.0)


def test_CFG_02_nan_is_never_best(with_losses: Callable[..., RunResult]) -> None:
    result = with_losses([5, math.nan], patience=3)
    assert (result.steps, result.best_step, result.best_value) == (2, 1, 5.0)


def test_CFG_02_a_run_of_nothing_but_nan_is_refused(with_losses: Callable[..., RunResult]) -> None:
    with pytest.raises(ValueError, match="the run has diverged: `validation/loss` was never a finite number"):
        with_losses([math.nan], patience=3)


def test_CFG_02_nan_first_gives_way_to_a_number(run_settings: Settings, tmp_path: Path, monkeypatch: Any) -> None:
    given = [math.nan, 5.0, math.nan]
    original = Task.report_loss

    def report(self: Task, nll_per_token: float) -> None:
        original(self, nll_per_token if self.trainer.sanity_checking else given.pop(0))

    monkeypatch.setattr(Task, "report_loss", report)
    changes = {"trainer.max_steps": 6, "checkpoint.keep_best": 2}
    result = train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path / "run", QUIET)
    assert (result.best_step, result.best_value) == (4, 5.0)
