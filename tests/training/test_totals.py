"""What a run's checkpoint tells about its cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from transformer.data.translation_data import read_pairs
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import CHECKPOINTS, train
from transformer.training.totals import RunTotals, run_totals

QUIET = Console(quiet=True)


def totals(folder: Path) -> RunTotals:
    return run_totals(load_checkpoint(folder / CHECKPOINTS / "last.ckpt"))


def test_an_epoch_has_the_tokens_of_its_targets(run_settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    changes = {"trainer.max_steps": None, "trainer.max_epochs": 2, "validation.every_n_steps": 50}
    config = TrainConfig.from_plain(run_settings("translation", changes))
    train(config, tmp_path, QUIET)
    pairs = read_pairs(config.data, "train")
    assert pairs is not None
    found = totals(tmp_path)
    assert found.tokens == 2 * sum(len(target.encode()) + 1 for _, target in pairs.rows)  # bytes, and an end token
    assert found.seconds is not None
    assert 0 < found.seconds < 60
    assert found.data_checksum


def test_a_resumed_run_goes_on_counting(run_settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    config = TrainConfig.from_plain(run_settings("text", {"trainer.max_steps": 4}))
    train(config, whole, QUIET)
    train(TrainConfig.from_plain(run_settings("text", {"trainer.max_steps": 2})), halves, QUIET)
    first = totals(halves)
    train(config, halves, QUIET, resume=True)
    second = totals(halves)
    assert totals(whole).tokens == second.tokens == 4 * 64  # full windows, 64 tokens a batch
    assert first.tokens == 2 * 64
    assert first.seconds is not None
    assert second.seconds is not None
    assert second.seconds > first.seconds
    assert totals(whole).data_checksum == second.data_checksum


@pytest.mark.parametrize("checkpoint", [{}, {"callbacks": {}, "loops": {"fit_loop": {"state_dict": {}}}}])
def test_a_checkpoint_that_tells_nothing(checkpoint: dict[str, Any]) -> None:
    assert run_totals(checkpoint) == RunTotals(None, None, None)
