"""Checkpoints written by another thread: in order, one at a time, of the moment they were asked for."""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.fabric.plugins import CheckpointIO
from rich.console import Console

from transformer.training import background_saves
from transformer.training.background_saves import BackgroundCheckpointIO, check_room, num_bytes, on_host
from transformer.training.checkpoints import AtomicCheckpointIO, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import check_room_for_run, train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


class Slow(AtomicCheckpointIO):
    """Writes when it is allowed to; remembers what it did."""

    def __init__(self) -> None:
        self.go, self.done = threading.Event(), []  # type: ignore[var-annotated]
        self.error: Exception | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        super().save_checkpoint(checkpoint, path)
        self.done.append(("saved", Path(path).name))

    def remove_checkpoint(self, path: Any) -> None:
        super().remove_checkpoint(path)
        self.done.append(("removed", Path(path).name))


@pytest.fixture
def slow() -> Iterator[Slow]:
    files = Slow()
    yield files
    files.go.set()


def checkpoint(value: float) -> dict[str, Any]:
    weight = torch.full((3,), value)
    return {"state_dict": {"weight": weight, "tied": weight}, "global_step": 7, "callbacks": {"best": {"a": weight}}}


def test_what_is_written_is_of_the_moment_of_the_call(tmp_path: Path, slow: Slow) -> None:
    given, files = checkpoint(1.0), BackgroundCheckpointIO(slow)
    files.save_checkpoint(given, tmp_path / "a.ckpt")
    given["state_dict"]["weight"].fill_(2.0)
    given["callbacks"]["best"]["b"] = 3
    given["global_step"] = 8
    assert not (tmp_path / "a.ckpt").exists()
    slow.go.set()
    files.finish()
    found = load_checkpoint(tmp_path / "a.ckpt")
    assert found["state_dict"]["weight"].tolist() == [1.0, 1.0, 1.0]
    assert (found["global_step"], list(found["callbacks"]["best"])) == (7, ["a"])
    assert found["state_dict"]["weight"].data_ptr() == found["state_dict"]["tied"].data_ptr()
    files.teardown()


def test_files_come_and_go_in_the_order_asked_for_one_at_a_time(tmp_path: Path, slow: Slow) -> None:
    files, returned = BackgroundCheckpointIO(slow), threading.Event()
    (tmp_path / "old.ckpt").touch()
    files.save_checkpoint(checkpoint(1.0), tmp_path / "new.ckpt")
    files.remove_checkpoint(tmp_path / "old.ckpt")

    def third() -> None:
        files.save_checkpoint(checkpoint(2.0), tmp_path / "last.ckpt")
        returned.set()

    thread = threading.Thread(target=third)
    thread.start()
    assert not returned.wait(0.1)  # the first is still being written
    assert (tmp_path / "old.ckpt").exists()
    slow.go.set()
    thread.join()
    files.finish()
    assert slow.done == [("saved", "new.ckpt"), ("removed", "old.ckpt"), ("saved", "last.ckpt")]
    files.teardown()


def test_a_failed_write_is_told_and_nothing_more_is_done(tmp_path: Path, slow: Slow) -> None:
    files = BackgroundCheckpointIO(slow)
    (tmp_path / "old.ckpt").touch()
    slow.error = OSError(errno.ENOSPC, "No space left on device")
    files.check()
    files.save_checkpoint(checkpoint(1.0), tmp_path / "new.ckpt")
    files.remove_checkpoint(tmp_path / "old.ckpt")
    slow.go.set()
    files.teardown()  # silent
    message = f"{tmp_path / 'new.ckpt'} could not be written: No space left on device. What was saved before is kept"
    for call in (files.check, files.finish, lambda: files.save_checkpoint(checkpoint(1.0), tmp_path / "b.ckpt")):
        with pytest.raises(ValueError, match=message):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["old.ckpt"]


def test_another_fault_is_raised_as_it_is(tmp_path: Path, slow: Slow) -> None:
    files = BackgroundCheckpointIO(slow)
    slow.error = ZeroDivisionError()
    slow.go.set()
    files.save_checkpoint(checkpoint(1.0), tmp_path / "new.ckpt")
    with pytest.raises(ZeroDivisionError):
        files.finish()


def test_a_checkpoint_is_read_after_it_is_written(tmp_path: Path, slow: Slow) -> None:
    files = BackgroundCheckpointIO(slow)
    files.save_checkpoint(checkpoint(1.0), tmp_path / "a.ckpt")
    threading.Timer(0.05, slow.go.set).start()
    assert files.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 7
    files.teardown()


def test_copies_keep_views_lists_and_plain_data() -> None:
    whole = torch.arange(6.0).view(2, 3)
    value = {"view": whole[:, 1], "same": [whole, whole], "pair": (whole[0], None), "plain": 5, "empty": torch.empty(0)}
    copied = on_host(value)
    assert copied["view"].tolist() == [1, 4]
    assert copied["same"][0] is copied["same"][1]
    assert torch.equal(copied["same"][0], whole)
    assert (copied["pair"][0].tolist(), copied["pair"][1], copied["plain"]) == ([0, 1, 2], None, 5)
    whole.zero_()
    assert copied["same"][0].sum() == 15
    assert num_bytes({"a": whole, "b": [whole, (torch.zeros(5),)]}) == 24 + 20


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(background_saves.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def test_a_full_disk_is_noticed_before_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    files = BackgroundCheckpointIO(slow)
    with_free(monkeypatch, 2_000_000)
    big = checkpoint(1.0) | {"optimizer_states": [torch.zeros(1_000_000)]}
    with pytest.raises(ValueError, match=r"to save last\.ckpt needs 4 MB, but the disk of .* has 2 MB left\. What was"):
        files.save_checkpoint(big, tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert list(tmp_path.iterdir()) == []
    check_room(tmp_path, 2_000_000, "this")


def test_a_run_that_would_not_fit_is_refused(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000,000 weights, two moments of each: 12 MB; 2 best, 1 latest, the last and one being written: 60 MB."""
    settings = run_settings("text", {"checkpoint": {"keep_best": 2, "keep_latest": 1}})
    plain, with_ema = (TrainConfig.from_plain(settings | {"ema": ema}) for ema in (None, {"decay": 0.9}))
    with_free(monkeypatch, 60_000_000)
    check_room_for_run(plain, 1_000_000, tmp_path)
    with pytest.raises(ValueError, match="a run that keeps 4 checkpoints needs 80 MB, but"):
        check_room_for_run(with_ema, 1_000_000, tmp_path)
    with_free(monkeypatch, 59_000_000)
    with pytest.raises(ValueError, match="a run that keeps 4 checkpoints needs 60 MB, but"):
        check_room_for_run(plain, 1_000_000, tmp_path)
    double = TrainConfig.from_plain(
        run_settings("text", {"checkpoint": {"keep_best": 2, "keep_latest": 1}, "trainer.precision": "64-true"})
    )
    with pytest.raises(ValueError, match="a run that keeps 4 checkpoints needs 120 MB, but"):
        check_room_for_run(double, 1_000_000, tmp_path)
    (tmp_path / "last.ckpt").write_bytes(b"x" * 1_000_000)  # the run has this already
    check_room_for_run(plain, 1_000_000, tmp_path)
    with_free(monkeypatch, 1000)
    with pytest.raises(ValueError, match="a run that keeps 4 checkpoints needs"):
        train(plain, tmp_path / "run", QUIET)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_disk_that_fills_up_ends_the_run_and_leaves_what_was_saved(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig.from_plain(
        run_settings(
            "text",
            {"trainer.max_steps": 200, "checkpoint.every_n_steps": 2, "validation.every_n_steps": 200},
        )
    )
    original = torch.save

    def failing(value: Any, file: Any) -> None:
        original(value, file)
        if value["global_step"] == 6:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", failing)
    last = tmp_path / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match=r"last\.ckpt could not be written: No space left on device\. What was saved"):
        train(config, tmp_path, QUIET)
    assert load_checkpoint(last)["global_step"] == 4
    assert [path.name for path in last.parent.iterdir()] == ["last.ckpt"]  # the half-written file takes no room
    monkeypatch.setattr(torch, "save", original)
    assert train(config, tmp_path, QUIET, resume=True).steps == 200


def test_the_training_does_not_wait_for_a_write(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, written = AtomicCheckpointIO.save_checkpoint, []

    def slowly(self: CheckpointIO, checkpoint: dict[str, Any], path: Any, **options: Any) -> None:
        time.sleep(0.3)
        original(self, checkpoint, path, **options)  # type: ignore[arg-type]
        written.append((time.perf_counter(), Path(path).name))

    monkeypatch.setattr(AtomicCheckpointIO, "save_checkpoint", slowly)
    step, started = Task.training_step, {}

    def training_step(task: Task, batch: Any, batch_idx: int) -> torch.Tensor:
        started[batch_idx] = time.perf_counter()
        return step(task, batch, batch_idx)

    monkeypatch.setattr(Task, "training_step", training_step)
    changes = {"trainer.max_steps": 4, "checkpoint.every_n_steps": 2, "validation.every_n_steps": 9}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, QUIET)
    assert [name for _, name in written] == ["last.ckpt", "best-step=4.ckpt", "last.ckpt"]
    assert started[2] < written[0][0]
