"""The trainer of a run, its loggers, its callbacks, and the hardware that they need."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from rich.console import Console

from transformer.training.config import TrainConfig
from transformer.training.run import train
from transformer.training.setup import (
    best_and_stopping,
    build_trainer,
    check_accelerator,
    choose_precision,
    choose_strategy,
)
from transformer.training.trainer_config import TrainerConfig

Settings = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("accelerator", "cuda", "bf16_gpu", "bf16_cpu", "expected"),
    [
        ("cpu", False, False, True, "bf16-mixed"),
        ("cpu", False, False, False, "32-true"),
        ("cpu", True, True, False, "32-true"),
        ("auto", True, True, False, "bf16-mixed"),
        ("auto", True, False, True, "32-true"),
        ("auto", False, False, True, "bf16-mixed"),
        ("gpu", True, True, False, "bf16-mixed"),
        ("gpu", True, False, True, "32-true"),
    ],
)
def test_automatic_precision(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, cuda: bool, bf16_gpu: bool, bf16_cpu: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16_gpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    # As Arm processors call it; those of Intel and AMD: tests/nn/test_bfloat16.py.
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"neon": True, "bf16": bf16_cpu})
    settings = TrainerConfig.from_plain({"max_steps": 1, "accelerator": accelerator})
    assert choose_precision(settings) == expected
    assert choose_precision(settings.model_copy(update={"precision": "64-true"})) == "64-true"


def test_best_checkpoint_and_early_stopping_look_the_right_way(run_settings: Settings, tmp_path: Path) -> None:
    changes = {
        "checkpoint": {"monitor": "validation/bleu", "keep_best": 3},
        "early_stopping": {"monitor": "validation/loss", "patience": 2, "min_delta": 0.5},
    }
    best, stopping = best_and_stopping(TrainConfig.from_plain(run_settings("translation", changes)), tmp_path)
    assert isinstance(best, ModelCheckpoint)
    assert (best.monitor, best.mode, best.save_top_k) == ("validation/bleu", "max", 3)
    assert isinstance(stopping, EarlyStopping)
    assert (stopping.monitor, stopping.mode, stopping.patience) == ("validation/loss", "min", 2)
    assert stopping.min_delta == -0.5  # in the direction of improvement
    [alone] = best_and_stopping(TrainConfig.from_plain(run_settings("translation")), tmp_path)
    assert isinstance(alone, ModelCheckpoint)


def test_the_trainer_gets_its_settings(run_settings: Settings, tmp_path: Path) -> None:
    changes = {"trainer.accumulate_grad_batches": 3, "trainer.gradient_clip_val": 0.5, "validation.every_n_steps": 7}
    trainer = build_trainer(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, [])
    assert (trainer.accumulate_grad_batches, trainer.gradient_clip_val, trainer.max_steps) == (3, 0.5, 4)
    assert trainer.val_check_interval == 21  # batches
    assert trainer.loggers == []


@pytest.mark.parametrize("logger", ["tensorboard", "wandb"])
def test_a_logger_that_is_not_installed_is_refused_before_the_data_are_read(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logger: str
) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == logger else original(name))
    monkeypatch.setattr("transformer.training.run.build_parts", lambda *_: pytest.fail("data were read"))
    config = TrainConfig.from_plain(run_settings("text", {"loggers": [{"name": "csv"}, {"name": logger}]}))
    with pytest.raises(ValueError, match=f"`logger={logger}` needs the package {logger}, which is not installed") as e:
        train(config, tmp_path / "run", Console(quiet=True))
    assert str(e.value).endswith("in a clone: pip install -e '.[tracking]'")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"trainer.accelerator": "gpu"},
            "`trainer.accelerator` must be hardware that this machine has, but is gpu; "
            "trainer.accelerator=cpu runs on the CPU.",
        ),
        (
            {"trainer.precision": "16-mixed"},
            "`trainer.precision: 16-mixed` needs a CUDA GPU; on a CPU use bf16-mixed or 32-true.",
        ),
    ],
)
def test_hardware_that_is_not_there_is_refused_before_the_data_are_read(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr("transformer.training.run.build_parts", lambda *_: pytest.fail("data were read"))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path / "run", Console(quiet=True))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("accelerator", "precision", "cuda", "mps", "fits"),
    [
        ("auto", "32-true", False, False, True),
        ("cpu", "bf16-mixed", False, False, True),
        ("cuda", "32-true", True, False, True),
        ("cuda", "32-true", False, True, False),
        ("mps", "32-true", False, True, True),
        ("mps", "32-true", True, False, False),
        ("gpu", "32-true", True, False, True),
        ("gpu", "32-true", False, True, True),
        ("gpu", "32-true", False, False, False),
        ("gpu", "16-mixed", True, False, True),
        ("auto", "16-mixed", True, False, True),
        ("auto", "16-mixed", False, False, False),
        ("mps", "16-mixed", False, True, False),
        ("cpu", "16-mixed", True, False, False),  # a GPU that is not used does not help
    ],
)
def test_which_hardware_and_precision_fit(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, precision: str, cuda: bool, mps: bool, fits: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    settings = TrainerConfig.from_plain({"max_steps": 1, "accelerator": accelerator, "precision": precision})
    if fits:
        check_accelerator(settings)
    else:
        with pytest.raises(ValueError, match=r"^`trainer\."):
            check_accelerator(settings)


@pytest.mark.parametrize(
    ("accelerator", "devices", "num_gpus", "fits"),
    [
        ("gpu", 2, 2, True),
        ("auto", 3, 2, False),
        ("cuda", 4, 1, False),
        ("cpu", 4, 1, True),
        ("gpu", "auto", 1, True),
    ],
)
def test_no_more_devices_than_there_are(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, devices: int | str, num_gpus: int, fits: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    settings = TrainerConfig.from_plain({"max_steps": 1, "accelerator": accelerator, "devices": devices})
    if fits:
        check_accelerator(settings)
        return
    message = (
        rf"^`trainer\.devices` must be at most the number of GPUs of this machine \({num_gpus}\), but is {devices}"
    )
    with pytest.raises(ValueError, match=message):
        check_accelerator(settings)


@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        ({"trainer.devices": 2, "trainer.strategy": "ddp"}, "ddp"),
        ({"trainer.devices": 2, "trainer.strategy": "ddp", "model.layer_dropout": 0.1}, "find_unused"),
        ({"trainer.devices": 2, "trainer.strategy": "auto", "model.layer_dropout": 0.1}, "find_unused"),
        ({"trainer.devices": 1, "trainer.strategy": "auto", "model.layer_dropout": 0.1}, "auto"),
        ({"trainer.devices": 1, "trainer.num_nodes": 2, "model.layer_dropout": 0.1}, "find_unused"),
    ],
)
def test_data_parallelism_looks_for_the_parameters_of_skipped_layers(
    run_settings: Settings, changes: dict[str, Any], strategy: str
) -> None:
    chosen = choose_strategy(TrainConfig.from_plain(run_settings("translation", changes)))
    assert chosen == {"find_unused": "ddp_find_unused_parameters_true"}.get(strategy, strategy)
