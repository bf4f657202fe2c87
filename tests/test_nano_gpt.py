"""The nanoGPT-style loop: what it is told on a CPU and on a GPU."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)


@pytest.fixture
def make_loop(tmp_path: Path) -> Any:
    """Build a loop over random ids."""
    nano_gpt, machine = import_module("peers.nano_gpt"), import_module("peers.machine")
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=1, d_model=8, num_heads=2, max_length=4, activation="gelu", bias=False,
        dropout=0.0,
    )  # fmt: skip
    np.random.default_rng(0).integers(11, size=50).astype(np.uint16).tofile(tmp_path / "ids.bin")

    def make(rate: Any) -> Any:
        torch.manual_seed(0)
        model = nano_gpt.NanoGpt(DecoderOnly(config, 11))
        place = torch.device("cpu"), machine.Precision.FP32, None
        return nano_gpt.ShippedLoop(model, tmp_path / "ids.bin", 2, 4, *place, rate)

    return make


def test_a_gpu_is_used_as_its_own_files_say() -> None:
    """Its `train.py` compiles and allows TF32; its character recipe logs every tenth step, its CPU command every."""
    nano_gpt = import_module("peers.nano_gpt")
    assert nano_gpt.SHIPPED["cuda"] == nano_gpt.Shipped(compile=True, tf32=True, log_interval=10)
    assert nano_gpt.SHIPPED["cpu"] == nano_gpt.Shipped(compile=False, tf32=False, log_interval=1)


@pytest.fixture
def _tf32() -> Iterator[None]:
    """Both switches, put back afterwards; monkeypatch cannot, since they are no plain attributes."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("_tf32")
def test_what_is_told_is_done(make_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nano_gpt, laps = import_module("peers.nano_gpt"), import_module("peers.laps")
    compiled: list[torch.nn.Module] = []

    def compiling(model: torch.nn.Module) -> Any:
        compiled.append(model)
        return lambda *batch: model(*batch)

    monkeypatch.setattr(torch, "compile", compiling)
    rates: list[int] = []

    def rate(update: int) -> float:
        rates.append(update)
        return 1e-3

    plain = make_loop(rate)
    plain(laps.Lap(0, 7))
    assert (len(plain.log), compiled) == (7, [])
    assert not torch.backends.cuda.matmul.allow_tf32
    monkeypatch.setitem(nano_gpt.SHIPPED, "cpu", nano_gpt.Shipped(compile=True, tf32=True, log_interval=3))
    other = make_loop(rate)
    other(laps.Lap(0, 7))
    assert compiled == [other.model]
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    assert other.log == pytest.approx(plain.log[::3])  # of updates 0, 3 and 6
    other(laps.Lap(7, 3))
    assert len(other.log) == 4  # and 9: a new lap goes on counting
    assert rates[::2] == [*range(7), *range(10)]  # asked for once for each of two groups of parameters
