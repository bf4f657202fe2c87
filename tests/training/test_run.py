"""A whole run: what it leaves behind and what it returns."""

import gc
import io
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.bundle import load_bundle, save_bundle
from transformer.inference.split import score_split
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


@pytest.mark.parametrize("kind", ["translation", "text"])
@pytest.mark.parametrize("logger", ["csv", "none"])
def test_what_a_run_leaves(run_settings: Settings, tmp_path: Path, kind: str, logger: str) -> None:
    loggers = [] if logger == "none" else [{"name": logger}]
    result = train(TrainConfig.from_plain(run_settings(kind, {"loggers": loggers})), tmp_path / "run", QUIET)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    of_the_data = {"preparation.json", "lengths.png"}
    assert names == {"checkpoints", "curve.png", "metrics.jsonl", "tokenizers"} | of_the_data | {logger} - {"none"}
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())[-1] == "last.ckpt"
    if logger == "csv":
        [table] = (tmp_path / "run" / "csv").rglob("metrics.csv")
        heading = table.read_text().splitlines()[0].split(",")
        assert {"train/loss", "train/learning_rate", "train/tokens_per_second", "validation/loss", "step"} <= set(
            heading
        )
    assert result.steps == 4
    assert not result.bundle.model.training
    assert result.bundle.config.mark_documents is False
    assert (result.bundle.source_tokenizer is result.bundle.target_tokenizer) is True


def test_the_bundle_has_the_best_weights_not_the_last(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [3.0, 1.0, 2.0]
    original = Task.report_loss

    def report(self: Task, nll_per_token: float) -> None:
        original(self, 9.0 if self.trainer.sanity_checking else given.pop(0))

    monkeypatch.setattr(Task, "report_loss", report)
    changes = {"trainer.max_steps": 6, "checkpoint.keep_best": 2}
    result = train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert (result.best_step, result.best_value, result.steps) == (4, 1.0, 6)
    folder = tmp_path / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["best-step=4.ckpt", "best-step=6.ckpt", "last.ckpt"]
    best, last = (load_checkpoint(folder / name)["state_dict"] for name in ("best-step=4.ckpt", "last.ckpt"))
    weights = dict(result.bundle.model.named_parameters())
    assert all(torch.equal(weights[name], best[f"model.{name}"]) for name in weights)
    assert any(not torch.equal(weights[name], last[f"model.{name}"]) for name in weights)


@pytest.mark.parametrize("kind", ["translation", "text"])
def test_a_bundle_trained_in_double_precision_scores_the_same_once_it_is_loaded(
    run_settings: Settings, tmp_path: Path, kind: str
) -> None:
    config = TrainConfig.from_plain(run_settings(kind, {"trainer.precision": "64-true", "trainer.max_steps": 2}))
    result = train(config, tmp_path / "run", QUIET)
    stored = load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["state_dict"]
    assert {tensor.dtype for tensor in stored.values()} == {torch.float64}
    assert {tensor.dtype for tensor in result.bundle.model.parameters()} == {torch.float32}
    scored = score_split(result.bundle, config.data, "validation")
    save_bundle(tmp_path / "bundle", result.bundle, "card")
    assert score_split(load_bundle(tmp_path / "bundle"), config.data, "validation") == scored


def test_a_run_begins_without_the_model_of_the_run_before_it(run_settings: Settings, tmp_path: Path) -> None:
    before: list[weakref.ref[torch.nn.Module]] = []
    still_there: list[bool] = []

    def built(model: torch.nn.Module) -> None:
        still_there.append(any(reference() is not None for reference in before))
        before.append(weakref.ref(model))

    gc.disable()  # as it is until Python happens to look
    try:
        for number in range(2):
            train(TrainConfig.from_plain(run_settings("text")), tmp_path / str(number), QUIET, built=built)
    finally:
        gc.enable()
    assert still_there == [False, False]


def test_the_run_learns(run_settings: Settings, tmp_path: Path) -> None:
    changes = {"trainer.max_steps": 100, "validation.every_n_steps": 100, "validation.num_shown": 0}
    changes["scheduler"] = {"name": "constant", "warmup_steps": 2}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    losses = [entry["train/loss"] for entry in read_history(tmp_path / "metrics.jsonl") if "train/loss" in entry]
    assert losses[0] > 5  # nearly uniform over 260 tokens: ln 260 = 5.56
    assert losses[-1] < 0.5  # one sentence again and again


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"trainer.max_steps": 3, "trainer.max_epochs": 9}, 3),
        ({"trainer.max_steps": None, "trainer.max_epochs": 1}, 11),
        ({"trainer.max_steps": None, "trainer.max_epochs": 2}, 22),
        ({"trainer.max_steps": None, "trainer.max_epochs": 1, "trainer.accumulate_grad_batches": 3}, 4),
    ],
)
def test_the_shorter_limit_counts(run_settings: Settings, tmp_path: Path, changes: dict[str, Any], steps: int) -> None:
    """720 bytes of training text: 44 windows of 16 tokens, 11 batches of 4."""
    result = train(
        TrainConfig.from_plain(run_settings("text", {"validation.every_n_steps": 50, **changes})), tmp_path, QUIET
    )
    assert result.steps == steps
    assert [e["step"] for e in read_history(tmp_path / "metrics.jsonl") if "validation/loss" in e] == [steps]


def test_a_time_limit_ends_a_run_with_a_validation(run_settings: Settings, tmp_path: Path) -> None:
    changes = {"trainer.max_steps": 100_000, "trainer.max_time": "00:00:00:01", "validation.every_n_steps": 90_000}
    result = train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert 1 <= result.steps < 100_000
    entries = [entry for entry in read_history(tmp_path / "metrics.jsonl") if "validation/loss" in entry]
    assert [entry["step"] for entry in entries] == [result.steps]
    assert result.best_step == result.steps


def test_an_early_stop_is_told(run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer.training.task.rate_factor", lambda *_: lambda step: 0.0)  # no improvement ever
    out = io.StringIO()
    changes = {"trainer.max_steps": 50, "early_stopping": {"patience": 2}}
    result = train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, Console(file=out, width=300))
    assert result.steps == 6
    assert "stopped early: Monitored metric validation/loss did not improve in the last 2 records." in out.getvalue()


def test_gradients_are_clipped_per_token(run_settings: Settings, tmp_path: Path) -> None:
    """The norm that is clipped is that of the mean, not of the sum: a limit above it changes nothing."""
    weights = []
    for number, limit in enumerate((None, 1e6, 1e-3)):
        changes = {"trainer.max_steps": 2, "trainer.gradient_clip_val": limit, "optimizer.eps": 1.0}
        train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path / str(number), QUIET)
        weights.append(load_checkpoint(tmp_path / str(number) / "checkpoints" / "last.ckpt")["state_dict"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
