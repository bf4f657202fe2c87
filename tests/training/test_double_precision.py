"""A run in double precision goes on exactly, like any other: Lightning converts the module after it has loaded it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import train


@pytest.mark.parametrize("ema", [None, {"decay": 0.9}])
def test_a_resumed_run_in_double_precision_ends_in_the_weights_of_one_that_was_not_stopped(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, ema: dict[str, float] | None
) -> None:
    def run(steps: int, folder: str, *, resume: bool = False) -> None:
        changes = {"trainer.precision": "64-true", "trainer.max_steps": steps, "ema": ema}
        config = TrainConfig.from_plain(run_settings("text", changes))
        train(config, tmp_path / folder, Console(quiet=True), resume=resume)

    run(8, "whole")
    run(4, "halves")
    run(8, "halves", resume=True)
    whole, halves = (
        load_checkpoint(tmp_path / folder / "checkpoints" / "last.ckpt")["state_dict"] for folder in ("whole", "halves")
    )
    assert all(weight.dtype == torch.float64 for weight in whole.values())
    for name, weight in whole.items():
        assert torch.equal(weight, halves[name]), name
