"""Checkpoint files are whole or absent, and Ctrl-C ends a run in good order."""

import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.training import checkpoints
from transformer.training.checkpoints import AtomicCheckpointIO, RunInterrupted, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)
GOOD = {"state_dict": {"weight": torch.ones(3)}, "global_step": 7}


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "last.ckpt"
    files = AtomicCheckpointIO()
    files.save_checkpoint(GOOD, path)
    before = path.read_bytes()

    def half(_: Any, file: Any) -> None:
        file.write(before[: len(before) // 2])
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="No space left"):
        files.save_checkpoint({**GOOD, "global_step": 8}, path)
    assert path.read_bytes() == before
    assert files.load_checkpoint(path)["global_step"] == 7
    assert list(path.parent.iterdir()) == [path]  # on a full disk half a file would take the room for the next


def test_a_file_is_written_out_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(checkpoints.os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(checkpoints.os, "replace", lambda *_: calls.append("replace"))
    AtomicCheckpointIO().save_checkpoint(GOOD, tmp_path / "last.ckpt")
    assert calls == ["fsync", "replace"]


def test_plain_data_without_weights_are_no_checkpoint(tmp_path: Path) -> None:
    for number, content in enumerate(([1, 2], {"global_step": 1}, {"state_dict": {}})):
        path = tmp_path / f"{number}.ckpt"
        torch.save(content, path)
        with pytest.raises(ValueError, match=r"\.ckpt is not a training checkpoint"):
            load_checkpoint(path)
    assert load_checkpoint(_saved(tmp_path))["state_dict"]["weight"].tolist() == [1, 1, 1]


def test_a_checkpoint_of_a_gpu_loads_on_a_machine_without_one(tmp_path: Path) -> None:
    saved, path = _saved(tmp_path), tmp_path / "gpu.ckpt"
    cpu, gpu = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"  # the place of a tensor, as pickle writes it
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                assert content.count(cpu) == 1
                content = content.replace(cpu, gpu)
            new.writestr(name, content)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="on a CUDA device but"):
            torch.load(path, weights_only=True)
    weight = load_checkpoint(path)["state_dict"]["weight"]
    assert (weight.device.type, weight.tolist()) == ("cpu", [1, 1, 1])
    assert AtomicCheckpointIO().load_checkpoint(path, map_location="meta")["state_dict"]["weight"].device.type == "cpu"


def _saved(folder: Path) -> Path:
    AtomicCheckpointIO().save_checkpoint(GOOD, folder / "good.ckpt")
    return folder / "good.ckpt"


def test_when_the_last_checkpoint_is_written(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    original = AtomicCheckpointIO.save_checkpoint

    def recording(self: AtomicCheckpointIO, checkpoint: dict[str, Any], path: Any, **options: Any) -> None:
        if Path(path).name == "last.ckpt":
            steps.append(checkpoint["global_step"])
        original(self, checkpoint, path, **options)

    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", recording)
    changes = {"trainer.max_steps": 11, "checkpoint.every_n_steps": 2, "validation.every_n_steps": 4}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert steps == [2, 4, 6, 8, 10, 11]  # once a step, also where a validation falls on it


def interrupt_at(
    monkeypatch: pytest.MonkeyPatch, batch: int, times: int = 1, signum: signal.Signals = signal.SIGINT
) -> None:
    """Press Ctrl-C while a batch is computed, or send another signal."""
    original = Task.training_step

    def pressing(self: Task, examples: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == batch:
            for _ in range(times):
                signal.raise_signal(signum)
        return original(self, examples, batch_idx)

    monkeypatch.setattr(Task, "training_step", pressing)


@pytest.mark.parametrize(("accumulate", "batch", "step"), [(1, 2, 3), (1, 3, 4), (1, 8, 9), (2, 4, 3), (2, 5, 3)])
def test_ctrl_c_saves_after_the_step_and_the_run_goes_on_as_if_nothing_had_been(
    run_settings: Settings, tmp_path: Path, accumulate: int, batch: int, step: int
) -> None:
    changes = {
        "trainer.max_steps": 9,
        "trainer.accumulate_grad_batches": accumulate,
        "validation.every_n_steps": 4,
        "model.dropout": 0.2,
    }
    config = TrainConfig.from_plain(run_settings("text", changes))
    train(config, tmp_path / "whole", QUIET)
    before = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, batch)
        with pytest.raises(RunInterrupted):
            train(config, tmp_path / "stopped", QUIET)
    assert signal.getsignal(signal.SIGINT) == before
    assert load_checkpoint(tmp_path / "stopped" / "checkpoints" / "last.ckpt")["global_step"] == step
    train(config, tmp_path / "stopped", QUIET, resume=True)
    one, two = (load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("whole", "stopped"))
    assert all(torch.equal(one["state_dict"][name], two["state_dict"][name]) for name in one["state_dict"])
    histories = [read_history(tmp_path / name / "metrics.jsonl") for name in ("whole", "stopped")]
    assert histories[0] == histories[1]  # with every validation once


def test_a_second_ctrl_c_ends_the_run_at_once(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(monkeypatch, 1, times=2)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RunInterrupted) as stop:
        train(TrainConfig.from_plain(run_settings("text")), tmp_path, QUIET)
    assert (stop.value.signum, stop.value.saved) == (signal.SIGINT, False)
    assert signal.getsignal(signal.SIGINT) == before
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists()


def test_a_terminated_run_is_saved_and_goes_on(run_settings: Settings, tmp_path: Path) -> None:
    config = TrainConfig.from_plain(run_settings("text", {"trainer.max_steps": 5, "validation.every_n_steps": 4}))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 1, signum=signal.SIGTERM)
        with pytest.raises(RunInterrupted) as stop:
            train(config, tmp_path, QUIET)
    assert (stop.value.signum, stop.value.saved) == (signal.SIGTERM, True)
    assert signal.getsignal(signal.SIGTERM) == before
    last = tmp_path / "checkpoints" / "last.ckpt"
    assert load_checkpoint(last)["global_step"] == 2
    assert train(config, tmp_path, QUIET, resume=True).steps == 5


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_while_its_data_are_prepared_leaves_nothing_half_made(
    run_settings: Settings, tmp_path: Path, signum: signal.Signals
) -> None:
    plain = run_settings("translation", {"preparation.cache_folder": str(tmp_path / "cache")})
    before = signal.getsignal(signum)

    def stopping(what: str, done: int, total: int | None) -> None:
        signal.raise_signal(signum)

    with pytest.raises(RunInterrupted) as stop:
        train(TrainConfig.from_plain(plain), tmp_path / "run", QUIET, progress=stopping)
    assert (stop.value.signum, stop.value.saved) == (signum, False)
    assert signal.getsignal(signum) == before
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    assert train(TrainConfig.from_plain(plain), tmp_path / "run", QUIET).steps == 4
    assert (tmp_path / "run" / "preparation.json").exists()
