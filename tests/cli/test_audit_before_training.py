"""A new run audits its model before the first step."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.cli import train as command
from transformer.models.decoder_only import DecoderOnly
from transformer.training.checkpoints import load_checkpoint

SMALL = (
    *("experiment=language_model", "data=plain_text", "data.folder=.", "data.train=text.txt"),
    *("data.validation_fraction=0.2", "tokenizer=byte", "model=lm_char", "model.d_model=16", "model.num_heads=2"),
    *("model.d_ff=32", "model.num_layers=1", "model.max_length=16", "model.dropout=0.1", "logger=none"),
    *("batching.max_tokens_per_batch=64", "trainer.max_steps=2", "trainer.precision=32-true"),
    *("validation.every_n_steps=2", "validation.num_shown=0", "scheduler.warmup_steps=1"),
)


@pytest.fixture(autouse=True)
def _text(run_command: Callable[..., Any]) -> None:
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 20, encoding="utf-8")


def weights(folder: str) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = load_checkpoint(Path(folder) / "checkpoints" / "last.ckpt")["state_dict"]
    return state


def test_run_with_and_without_audit(run_command: Callable[..., Any]) -> None:
    audited = run_command(command.main, *SMALL, "hydra.run.dir=one")
    assert audited.status == 0, audited.err
    assert len(re.findall(r"^audit   1\d checks passed in \d+\.\d s$", audited.err, re.MULTILINE)) == 1
    plain = run_command(command.main, *SMALL, "audit=false", "hydra.run.dir=two")
    assert plain.status == 0, plain.err
    assert "audit" not in plain.err
    one, two = weights("one"), weights("two")
    assert all(torch.equal(one[name], two[name]) for name in two)  # the audit uses up no random number of the run
    resumed = run_command(command.main, "resume=one", "trainer.max_steps=3")
    assert resumed.status == 0, resumed.err
    assert "audit" not in resumed.err


def test_model_that_fails_is_not_trained(run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    forward = DecoderOnly.hidden

    def leaking(self: DecoderOnly, tokens: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        hidden = forward(self, tokens, *arguments, **options)
        return hidden._replace(hidden_BLD=hidden.hidden_BLD + hidden.hidden_BLD.mean(1, keepdim=True))

    monkeypatch.setattr(DecoderOnly, "hidden", leaking)
    failed = run_command(command.main, *SMALL, "hydra.run.dir=run")
    assert failed.status == 1
    assert "error: the model fails its audit, so nothing was trained:\n  future changed: largest" in failed.err
    assert failed.err.endswith("`audit: false` trains it nevertheless.\n")
    assert not (Path("run") / "checkpoints" / "last.ckpt").exists()
    assert run_command(command.main, *SMALL, "audit=false", "hydra.run.dir=run").status == 0
