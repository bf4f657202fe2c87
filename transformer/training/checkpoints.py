"""Checkpoints that are never half written, never unpickled, and from which a run goes on exactly."""

import os
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from transformer.training.background_saves import BackgroundCheckpointIO

LAST = "last.ckpt"
PLANNED = "planned.ckpt"
AGREE_EVERY_N_STEPS = 8  # ranks on whether to stop; each time they wait for one another, and a GPU for its host


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes to a temporary file beside the target, then renames: a killed run leaves the old file or the new one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.partial")  # a killed save is overwritten by the next
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)  # on a full disk it would take the room for the next
            raise
        os.replace(temporary, target)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return load_checkpoint(Path(path))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a training checkpoint onto the CPU; plain data only, so nothing in the file can run code.

    Raises:
        ValueError: if the file is missing, damaged, or holds anything but plain data; the message names it.
    """
    if not path.is_file():
        raise ValueError(f"the checkpoint {path} does not exist.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on formats that it does not expect; they are refused right below
            checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the bytes of a foreign file make of the reader
        raise ValueError(
            f"the checkpoint {path} is damaged or holds more than plain data, and is not loaded."
        ) from error
    if not isinstance(checkpoint, dict) or not {"state_dict", "global_step"} <= checkpoint.keys():
        raise ValueError(f"{path} is not a training checkpoint: it has no weights or no step.")
    return checkpoint


class RunInterrupted(BaseException):
    """The user asked the run to stop. Not an Exception: nothing should handle it on the way.

    Attributes:
        signum: how it was asked: SIGINT (Ctrl-C) or SIGTERM.
        saved: whether the run was saved at this point; not when it had to end at once.
    """

    def __init__(self, signum: int, *, saved: bool) -> None:
        super().__init__(signum, saved)
        self.signum, self.saved = signum, saved


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """While there is nothing to save yet, Ctrl-C and SIGTERM end the run cleanly, whatever it is doing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise RunInterrupted(signum, saved=False)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class LastCheckpoint(Checkpoint):
    """Keeps ``last.ckpt``, from which a run is resumed: every ``every_n_steps``, after each validation, and on Ctrl-C.

    A save that falls on a validation waits for it, so that a resumed run neither loses nor repeats one. Ctrl-C or
    SIGTERM ends the run after the current optimizer step and its validation, if one is due; a second one at once.
    Of several ranks it may reach any: they ask each other every :data:`AGREE_EVERY_N_STEPS` steps.

    What a run may go back to must not depend on when it was interrupted. So a save on Ctrl-C leaves the last planned
    one as ``planned.ckpt`` until the next.

    Args:
        folder: where to write.
        files: what writes; asked at every step whether it has failed.
        every_n_steps: optimizer steps between saves.
        validate_every_n_steps: optimizer steps between validations.
    """

    def __init__(
        self, folder: Path, files: BackgroundCheckpointIO, *, every_n_steps: int, validate_every_n_steps: int
    ) -> None:
        self.path, self.files = folder / LAST, files
        self._planned: bool | None = None  # whether last.ckpt is; None: there is none of this run
        self.every_n_steps, self.validate_every_n_steps = every_n_steps, validate_every_n_steps
        self.interrupted: int | None = None  # the signal

    @contextmanager
    def catching_interrupts(self) -> Iterator[None]:
        """Ctrl-C means this while a run goes on. In another thread than the main one it keeps its meaning."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:  # no hook: Lightning puts back what it found after calling them
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted is not None:
            raise RunInterrupted(signum, saved=False)
        self.interrupted = signum

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Lightning has put a handler before this one that broadcasts between ranks as the signal comes. It would wait
        # for ever where the others are in another exchange. It also puts back what was there before it.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches != 0 and not trainer.is_last_batch:
            return  # in the middle of an accumulation window
        self.files.check()
        step = trainer.global_step
        if step % self.validate_every_n_steps == 0 or step >= trainer.estimated_stepping_batches:
            return  # a validation follows
        due = step % self.every_n_steps == 0
        stop = (trainer.world_size == 1 or step % AGREE_EVERY_N_STEPS == 0) and self._must_stop(trainer)
        if stop or due:
            self._save(trainer, planned=due, stop=stop)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._save(trainer, planned=True, stop=self._must_stop(trainer))

    def state_dict(self) -> dict[str, bool | None]:
        return {"planned": self._planned}

    def load_state_dict(self, state_dict: dict[str, bool | None]) -> None:
        self._planned = state_dict["planned"]

    def latest_planned(self) -> Path | None:
        """The newest checkpoint that does not come from an interruption, complete on the disk; None if there is none.

        To be asked by all ranks.
        """
        self.files.finish()
        if self._planned:
            return self.path
        planned = self.path.with_name(PLANNED)
        return planned if self._planned is False and planned.exists() else None

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # The last batch of a shorter run is not that of this one; Lightning would stop at once, without a word.
        checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = False
        for state in checkpoint["callbacks"].values():
            if "best_k_models" in state:
                _move(state, Path(os.path.realpath(self.path.parent)))

    def _must_stop(self, trainer: Trainer) -> bool:
        """Whether any rank was asked to stop: a rank that went on alone would wait for the others for ever."""
        asked = self.interrupted is not None
        return trainer.strategy.reduce_boolean_decision(asked, all=False) if trainer.world_size > 1 else asked

    def _save(self, trainer: Trainer, *, planned: bool, stop: bool) -> None:
        other, was_planned, self._planned = self.path.with_name(PLANNED), self._planned, planned
        if trainer.is_global_zero and not planned and was_planned is not False:
            self.files.finish()
            other.unlink(missing_ok=True)
            if was_planned:
                partial = other.with_suffix(".partial")
                partial.unlink(missing_ok=True)
                try:
                    os.link(self.path, partial)  # takes no room: a save replaces last.ckpt, it does not write into it
                except OSError:  # a file system without links
                    shutil.copyfile(self.path, partial)
                os.replace(partial, other)
        trainer.save_checkpoint(self.path)
        if trainer.is_global_zero and planned and other.exists():
            self.files.remove_checkpoint(other)
        if stop:
            self.files.finish()
            raise RunInterrupted(signal.SIGTERM if self.interrupted is None else self.interrupted, saved=True)


def _move(state: dict[str, Any], folder: Path) -> None:
    """Let a ModelCheckpoint's state name its files where they are now: the run's folder may have been moved."""
    state["dirpath"] = str(folder)
    for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
        if state[key]:
            state[key] = str(folder / Path(state[key]).name)
    state["best_k_models"] = {str(folder / Path(path).name): score for path, score in state["best_k_models"].items()}
