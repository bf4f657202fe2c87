"""Training with compiled layers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.nn.layers import TransformerLayer
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch of itself
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler"),
]


@pytest.mark.parametrize("kind", ["translation", "text"])
def test_compiled_layers_train_to_the_same_weights(run_settings: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    results = {}
    for compiled in (False, True):
        folder = tmp_path / str(compiled)
        plain = run_settings(kind, {"trainer.compile": compiled, "trainer.max_steps": 6})
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
