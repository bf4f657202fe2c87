"""Where the commands run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.cli import evaluate, generate, translate
from transformer.cli.device import choose_device


def have(monkeypatch: pytest.MonkeyPatch, *devices: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)


def test_a_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for devices, best in (((), "cpu"), (("mps",), "mps"), (("cuda", "mps"), "cuda")):
        have(monkeypatch, *devices)
        assert choose_device("auto") == best
        assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize("kind", ["encoder_decoder", "decoder_only"])
@pytest.mark.parametrize("device", ["tpu", "cuda", "cuda:0", "meta", ""])
def test_what_is_not_there_is_refused(
    tiny_bundle: Callable[..., Any],
    run_tool: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    device: str,
) -> None:
    have(monkeypatch, "mps")
    save_bundle(tmp_path, tiny_bundle(kind), "card")
    app = translate.app if kind == "encoder_decoder" else generate.app
    result = run_tool(app, [tmp_path], input=b"a\n", device=device)
    assert (result.exit_code, result.stdout) == (2, "")
    sentence = f"the device must be auto or one that this machine has (cpu, mps), but is {device}."
    assert result.stderr == f"error: {sentence}\n"


def test_evaluation_too(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch)
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "card")
    arguments = (evaluate.main, f"bundle={tmp_path / 'bundle'}")
    for device, sentence in (
        ("tpu", "`accelerator` must be 'auto', 'cpu', 'cuda' or 'mps', but is 'tpu'."),
        ("cuda", "the device must be auto or one that this machine has (cpu), but is cuda."),
    ):
        assert run_command(*arguments, f"accelerator={device}") == (2, "", f"error: {sentence}\n")
