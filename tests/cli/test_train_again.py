"""``transformer-train`` on the folder of a run: what it finds there, and what it does about it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from transformer.bundle import load_bundle
from transformer.cli import train as command
from transformer.training import run as training


def test_a_finished_run_has_nothing_to_do(
    trained: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train", lambda *_, **__: pytest.fail("training began"))
    before = (trained / "config.yaml").read_text()
    for arguments in ([], ["trainer.max_steps=1"]):
        result = run_command(command.main, f"resume={trained}", *arguments)
        assert result.status == 0
        assert "already has 2 optimizer steps" in result.err
        assert "nothing to do" in result.err
    assert (trained / "config.yaml").read_text() == before


def test_a_run_may_be_made_longer(trained: Path, run_command: Callable[..., Any]) -> None:
    result = run_command(command.main, f"resume={trained}", "trainer.max_steps=3")
    assert result.status == 0, result.err
    steps = [line for line in (trained / "metrics.jsonl").read_text().splitlines() if "validation/loss" in line]
    assert len(steps) == 2
    assert '"step": 3' in steps[-1]
    assert "of 3, the best by" in (trained / "bundle" / "README.md").read_text()
    assert OmegaConf.load(trained / "config.yaml").trainer.max_steps == 3


def test_a_run_that_lacks_only_its_bundle_gets_it(trained: Path, run_command: Callable[..., Any]) -> None:
    weights = (trained / "bundle" / "model.safetensors").read_bytes()
    (trained / "bundle" / "config.json").unlink()  # it is written last
    result = run_command(command.main, f"resume={trained}", "decoding.max_new_tokens=5")
    assert result.status == 0, result.err
    assert load_bundle(trained / "bundle").config.decoding.max_new_tokens == 5
    assert OmegaConf.load(trained / "config.yaml").decoding.max_new_tokens == 5
    assert (trained / "bundle" / "model.safetensors").read_bytes() == weights


def test_a_longer_run_that_is_stopped_before_its_bundle_still_gets_it(
    trained: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder has a complete bundle, but that of fewer steps."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("transformer.cli.report.score_split", interrupted)
        assert run_command(command.main, f"resume={trained}", "trainer.max_steps=3").status == 130
    assert "of 2, the best by" in (trained / "bundle" / "README.md").read_text()
    assert load_bundle(trained / "bundle").config.model.d_model == 16  # of use until there is another
    result = run_command(command.main, f"resume={trained}")
    assert result.status == 0, result.err
    assert "of 3, the best by" in (trained / "bundle" / "README.md").read_text()
    assert "nothing to do" in run_command(command.main, f"resume={trained}").err


def test_a_refused_resumption_changes_nothing(trained: Path, run_command: Callable[..., Any]) -> None:
    before = (trained / "config.yaml").read_text()
    result = run_command(command.main, f"resume={trained}", "trainer.max_steps=3", "trainer.accelerator=tpu")
    assert result.status == 2
    result = run_command(command.main, f"resume={trained}", "trainer.max_steps=3", "trainer.accelerator=mps")
    assert result.status == 2
    assert "must be hardware that this machine has, but is mps" in result.err
    assert (trained / "config.yaml").read_text() == before
    assert "nothing to do" in run_command(command.main, f"resume={trained}").err


def test_a_run_whose_best_checkpoint_is_gone_goes_on(trained: Path, run_command: Callable[..., Any]) -> None:
    """As after a kill between the removal of an old best one and the ``last.ckpt`` that names the new one."""
    [best] = (trained / "checkpoints").glob("best-*.ckpt")
    best.unlink()
    path = trained / "checkpoints" / "last.ckpt"
    stored = torch.load(path, weights_only=True)
    for state in stored["callbacks"].values():
        if "best_k_models" in state and state["monitor"] != "step":
            state["best_model_score"] = torch.tensor(-1.0)  # better than any that comes
            state["best_k_models"] = dict.fromkeys(state["best_k_models"], torch.tensor(-1.0))
    torch.save(stored, path)
    result = run_command(command.main, f"resume={trained}", "trainer.max_steps=3")
    assert result.status == 0, result.err
    assert "Weights of step 3 of 3, the best by" in (trained / "bundle" / "README.md").read_text()


def test_a_run_may_have_been_moved(trained: Path, run_command: Callable[..., Any]) -> None:
    moved = trained.rename("moved")
    result = run_command(command.main, f"resume={moved}", "trainer.max_steps=3")
    assert result.status == 0, result.err
    assert "warn" not in result.err.lower()
    assert len(list((moved / "checkpoints").glob("best-*.ckpt"))) == 1
    assert not trained.exists()
