"""Training with compiled layers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.nn.layers import TransformerLayer
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train

pytestmark = [  # torch of itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


@pytest.mark.parametrize(
    ("compiled", "dropout", "within"),
    [((True, True), 0.2, 0.0), ((True, False), 0.0, 1e-5), ((False, True), 0.0, 1e-5)],
)
def test_a_resumed_run_may_be_compiled_and_ends_as_an_uninterrupted_one(
    run_settings: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiled: tuple[bool, bool],
    dropout: float,
    within: float,
) -> None:
    """Traced only, which needs no C++ compiler. The names of the weights are those of a run without compilation."""
    monkeypatch.setattr(TransformerLayer, "compile", lambda self: torch.nn.Module.compile(self, backend="eager"))
    monkeypatch.setattr("transformer.training.run.check_accelerator", lambda settings: None)
    torch._dynamo.reset()

    def run(folder: Path, steps: int, compile_layers: bool, *, resume: bool = False) -> dict[str, Any]:
        changes = {"trainer.compile": compile_layers, "trainer.max_steps": steps, "model.dropout": dropout}
        changes |= {"scheduler": {"name": "constant"}}
        result = train(
            TrainConfig.from_plain(run_settings("text", changes)), folder, Console(quiet=True), resume=resume
        )
        stored = load_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
        assert {name.removeprefix("model.") for name in stored} == set(result.bundle.model.state_dict())
        return stored

    run(tmp_path / "resumed", 4, compiled[0])
    resumed = run(tmp_path / "resumed", 8, compiled[1], resume=True)
    whole = run(tmp_path / "whole", 8, all(compiled))
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert resumed.keys() == whole.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(resumed[name], weight, rtol=0, atol=within)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize("kind", ["translation", "text"])
def test_compiled_layers_train_to_the_same_weights(run_settings: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    results = {}
    for compiled in (False, True):
        folder = tmp_path / str(compiled)
        # A key's bias moves all scores of a query alike, so its gradient is rounding and nothing else. With the usual
        # epsilon Adam would make whole steps of it, which are other ones once layers are compiled.
        plain = run_settings(kind, {"trainer.compile": compiled, "trainer.max_steps": 6, "optimizer.eps": 1e-4})
        torch._dynamo.reset()
        results[compiled] = (
            train(TrainConfig.from_plain(plain), folder, Console(quiet=True)),
            read_history(folder / "metrics.jsonl"),
        )
        assert torch._dynamo.utils.counters["frames"]["ok"] > 0 or not compiled
    (plain_run, plain_history), (compiled_run, compiled_history) = results[False], results[True]
    for one, two in zip(plain_history, compiled_history, strict=True):
        assert one.keys() == two.keys()
        assert one == pytest.approx(two, rel=1e-3)
    weights = compiled_run.bundle.model.state_dict()
    assert weights.keys() == plain_run.bundle.model.state_dict().keys()
    for name, weight in plain_run.bundle.model.state_dict().items():
        torch.testing.assert_close(weights[name], weight, atol=2e-3, rtol=1e-2)
    layers = [module for module in compiled_run.bundle.model.modules() if isinstance(module, TransformerLayer)]
    assert layers
    assert all(layer._compiled_call_impl is None for layer in layers)
