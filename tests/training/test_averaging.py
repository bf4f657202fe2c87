"""The mean of weights, and which checkpoints it is taken of."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from transformer.training.averaging import WeightMean, average_checkpoints, best_checkpoints, latest_checkpoints
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


class Tied(nn.Module):
    """Two names for one weight, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(3, 2), nn.Linear(2, 3)
        self.output.weight = self.embedding.weight


def test_the_mean_is_taken_in_float64_and_tied_weights_once() -> None:
    """In float32, 1 added to 2**25 is lost."""
    model = Tied()
    mean = WeightMean(model)
    for number, value in enumerate((2.0**25, 1.0, 1.0, 1.0)):
        weight = torch.full((3, 2), value)
        given = {"embedding.weight": weight, "output.bias": torch.full((3,), float(number))}
        if number % 2:
            given["output.weight"] = weight
        mean.add(given, f"model {number}")
    mean.finish()
    assert model.output.weight is model.embedding.weight
    assert model.embedding.weight.unique().tolist() == [torch.tensor((2.0**25 + 3) / 4).item()]
    assert torch.tensor((2.0**25 + 3) / 4).item() != 2.0**25 / 4
    assert model.output.bias.tolist() == [1.5, 1.5, 1.5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output.bias": None}, "there lacks `output.bias`, which the model has."),
        ({"extra": torch.zeros(1)}, "there holds `extra`, which the model does not have."),
        ({"output.bias": torch.zeros(4)}, "`output.bias` must have shape (3,), but has (4,) in there."),
        ({"output.bias": torch.tensor([0, 0, torch.nan])}, "`output.bias` in there has values that are not finite."),
    ],
)
def test_weights_of_another_model_are_refused(changes: dict[str, Any], message: str) -> None:
    given = {"embedding.weight": torch.zeros(3, 2), "output.bias": torch.zeros(3), **changes}
    weights = {name: weight for name, weight in given.items() if weight is not None}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        WeightMean(Tied()).add(weights, "there")


def test_a_run_keeps_its_latest_and_its_best_checkpoints(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter([3.0, 1.0, 2.0, 5.0, 4.0])
    original = Task.report_loss

    def report(self: Task, nll_per_token: float) -> None:
        original(self, 9.0 if self.trainer.sanity_checking else next(given))

    monkeypatch.setattr(Task, "report_loss", report)
    changes = {"trainer.max_steps": 50, "validation.every_n_steps": 10, "checkpoint.every_n_steps": 7}
    changes |= {"checkpoint.keep_latest": 3, "checkpoint.keep_best": 2}
    result = train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    folder = tmp_path / "checkpoints"
    names = ["best-step=20.ckpt", "best-step=30.ckpt", "last.ckpt"]
    latest = ["latest-step=30.ckpt", "latest-step=40.ckpt", "latest-step=50.ckpt"]
    assert sorted(path.name for path in folder.iterdir()) == names + latest
    assert [path.name for path in latest_checkpoints(folder, 2)] == latest[1:]
    assert [path.name for path in best_checkpoints(folder, 2, "validation/loss", "min")] == names[:2]
    assert [path.name for path in best_checkpoints(folder, 1, "validation/loss", "min")] == names[:1]
    assert [path.name for path in best_checkpoints(folder, 2, "validation/loss", "max")] == names[1::-1]
    with pytest.raises(ValueError, match="must have 4 checkpoints of the latest validations, but has 3; a run keeps"):
        latest_checkpoints(folder, 4)
    with pytest.raises(ValueError, match="must have 3 best checkpoints, but has 2; a run keeps as many"):
        best_checkpoints(folder, 3, "validation/loss", "min")
    model = result.bundle.model
    assert average_checkpoints(model, latest_checkpoints(folder, 3)) == [30, 40, 50]
    states = [load_checkpoint(folder / name)["state_dict"] for name in latest]
    for name, parameter in model.named_parameters():
        expected = torch.stack([state[f"model.{name}"].double() for state in states]).mean(0)
        torch.testing.assert_close(parameter.double(), expected, rtol=1e-6, atol=1e-9)


def test_the_latest_are_those_that_the_run_itself_names(tmp_path: Path) -> None:
    """An earlier run in the same folder has left some of higher steps. Steps are ordered as numbers."""
    names = {step: tmp_path / f"latest-step={step}.ckpt" for step in (90, 100, 1000, 2000)}
    for path in names.values():
        path.touch()
    kept = {str(Path("moved", names[step].name)): torch.tensor(float(step)) for step in (1000, 100, 90)}
    best = {"best-step=90.ckpt": torch.tensor(2.0)}
    callbacks = {"best": {"monitor": "validation/loss", "best_k_models": best}}
    callbacks |= {"latest": {"monitor": "step", "best_k_models": kept}, "other": {"seconds": 1.0}}
    torch.save({"state_dict": {}, "global_step": 1000, "callbacks": callbacks}, tmp_path / "last.ckpt")
    assert latest_checkpoints(tmp_path, 2) == [names[100], names[1000]]
    names[90].unlink()
    with pytest.raises(ValueError, match="must have 3 checkpoints of the latest validations, but has 2"):
        latest_checkpoints(tmp_path, 3)


def test_a_resumed_run_that_is_to_keep_fewer_or_more_does(run_settings: Settings, tmp_path: Path) -> None:
    def kept(steps: int, number: int) -> list[int]:
        changes = {"trainer.max_steps": steps, "checkpoint": {"keep_latest": number, "keep_best": number}}
        config = TrainConfig.from_plain(run_settings("text", changes))
        folder = tmp_path / "run" / "checkpoints"
        train(config, tmp_path / "run", QUIET, resume=folder.exists())
        assert len(list(folder.glob("best-*"))) == number
        return sorted(int(path.stem.partition("=")[2]) for path in folder.glob("latest-*"))

    assert kept(6, 3) == [2, 4, 6]
    assert kept(10, 1) == [10]
    assert kept(14, 2) == [12, 14]
    assert kept(16, 2) == [14, 16]
