"""The run's own record of its metrics."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from transformer.training.config import TrainConfig
from transformer.training.history import History, draw_curve, read_history
from transformer.training.run import train

QUIET = Console(quiet=True)
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_history(path) == []
    path.write_text('{"step": 1, "train/loss": 2.5}\n{"step": 2, "train/l', encoding="utf-8")
    assert read_history(path) == [{"step": 1, "train/loss": 2.5}]


def test_the_entries_of_a_run(run_settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    changes = {
        "trainer.max_steps": 5,
        "trainer.log_every_n_steps": 2,
        "validation.every_n_steps": 3,
        "scheduler.warmup_steps": 4,
        "optimizer.learning_rate": 0.4,
    }
    train(TrainConfig.from_plain(run_settings("translation", changes)), tmp_path, QUIET)
    entries = read_history(tmp_path / "metrics.jsonl")
    assert [(entry["step"], "validation/loss" in entry) for entry in entries] == [
        *((2, False), (3, True), (4, False), (5, True)),
    ]
    assert [entry["learning_rate"] for entry in entries if "train/loss" in entry] == pytest.approx([0.2, 0.4])
    scores = {"loss", "perplexity", "bleu", "chrf", "exact_match"}
    assert set(entries[1]) == {"step", *(f"validation/{name}" for name in scores)}


def test_steps_are_optimizer_steps(run_settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    changes = {"trainer.max_steps": 3, "trainer.accumulate_grad_batches": 4, "validation.every_n_steps": 2}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    entries = read_history(tmp_path / "metrics.jsonl")
    assert [(entry["step"], "validation/loss" in entry) for entry in entries] == [
        *((1, False), (2, False), (2, True), (3, False), (3, True)),
    ]


@pytest.mark.parametrize(
    "history",
    [
        [],
        [{"step": 1, "train/loss": 2.5}],
        [{"step": 1, "train/loss": 2.5}, {"step": 2, "validation/loss": 2.0, "validation/bleu": 10.0}],
    ],
)
def test_the_curve_is_a_picture_whatever_is_known(tmp_path: Path, history: list[dict[str, float]]) -> None:
    draw_curve(history, tmp_path / "curve.png", title="a run")
    assert (tmp_path / "curve.png").read_bytes()[:8] == PNG


def test_a_value_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    """Readers of JSON refuse NaN, and a run survives one: its update is skipped."""
    history = History(tmp_path, every_n_steps=1)
    trainer: Any = SimpleNamespace(is_global_zero=True, global_step=3)
    history.record(trainer, {"train/loss": float("nan"), "learning_rate": 0.5})
    assert history.path.read_text() == '{"step": 3, "learning_rate": 0.5}\n'
