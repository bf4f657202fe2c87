"""One training run, from its settings to a trained model; started, resumed or stopped."""

import copy
import gc
import json
import math
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, LambdaCallback, ModelCheckpoint
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from rich.console import Console

from transformer.bundle import Bundle
from transformer.data.preparation.length_picture import draw_lengths
from transformer.data.preparation.report import PreparationReport
from transformer.data.preparation.texts import Progress
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.init import count_parameters
from transformer.training.attention_pictures import attention_pictures
from transformer.training.background_saves import BackgroundCheckpointIO, check_room
from transformer.training.callbacks import ProgressReport, StopAtEnd
from transformer.training.checkpoints import (
    LAST,
    AtomicCheckpointIO,
    LastCheckpoint,
    load_checkpoint,
    stopping_at_once,
)
from transformer.training.compilation import CompiledLayers
from transformer.training.config import TrainConfig
from transformer.training.divergence import RollBack
from transformer.training.ema import ExponentialMovingAverage
from transformer.training.history import METRICS, History, draw_curve, read_history
from transformer.training.parts import as_bundle, build_parts
from transformer.training.setup import (
    best_and_stopping,
    build_trainer,
    check_accelerator,
    check_loggers,
    choose_precision,
    keep_latest,
)
from transformer.training.totals import TokensSeen
from transformer.training.update_guard import UpdateGuard

CHECKPOINTS, CURVE = "checkpoints", "curve.png"
REPORT, LENGTHS = "preparation.json", "lengths.png"


class RunResult(NamedTuple):
    """A finished run.

    Attributes:
        bundle: the model with the weights of its best checkpoint, in evaluation mode, and its tokenizers.
        best_step: the optimizer step of that checkpoint.
        steps: optimizer steps of the whole run.
        best_value: the monitored metric there.
        device: where it was trained.
    """

    bundle: Bundle
    best_step: int
    steps: int
    best_value: float
    device: str


def nothing_to_do(config: TrainConfig, folder: Path) -> str | None:
    """Why a run in ``folder`` needs no training any more, or None if it does."""
    done = int(load_checkpoint(folder / CHECKPOINTS / LAST)["global_step"])
    wanted = config.trainer.max_steps
    if wanted is None or done < wanted:
        return None
    return (
        f"{folder} already has {done} optimizer steps, and `trainer.max_steps` is {wanted}: nothing to do. "
        f"Give a larger trainer.max_steps to go on."
    )


def train(
    config: TrainConfig,
    folder: Path,
    console: Console,
    *,
    resume: bool = False,
    progress: Progress = lambda what, done, total: None,
    prepared: Callable[[PreparationReport | None], None] = lambda report: None,
    built: Callable[[EncoderDecoder | DecoderOnly], None] = lambda model: None,
    started: Callable[[], None] = lambda: None,
) -> RunResult:
    """Train, and leave in ``folder``: tokenizers, checkpoints, ``metrics.jsonl``, ``curve.png`` and the loggers' files.

    How the training set was made is left in ``preparation.json`` and ``lengths.png``.

    Args:
        config: the run's settings.
        folder: the run's own folder.
        console: where progress is shown.
        resume: go on from the folder's ``checkpoints/last.ckpt``: steps, schedule, optimizer, order of examples and
            random numbers continue as if the run had never stopped.
        progress: told how far the preparation of the data is.
        prepared: told, before training, how the training set was made; None of a stream.
        built: shown the initial model, before its first step; not that of a resumed run.
        started: told that the first step comes next: all that could be refused has been accepted.

    Raises:
        ValueError: for settings or data that do not fit, before anything is trained.
        RunInterrupted: after Ctrl-C, once the run is saved.
    """
    # Trainer, task and optimizer refer to one another. Those of a run before this one in the process, as in a sweep,
    # would take memory until Python looks for such circles by itself.
    gc.collect()
    checkpoints = folder / CHECKPOINTS
    last = checkpoints / LAST
    check_loggers(config.loggers)
    if resume:
        load_checkpoint(last)  # a damaged one is refused before the data are read
    check_accelerator(config.trainer)
    with stopping_at_once():
        parts = build_parts(config, folder, progress, resume=resume)
    prepared(parts.report)
    if not resume:
        with stopping_at_once():
            built(parts.task.model)
    check_room_for_run(config, count_parameters(parts.task.model), checkpoints)
    files = BackgroundCheckpointIO(AtomicCheckpointIO())
    keep_best, *stopping = best_and_stopping(config, checkpoints)
    assert isinstance(keep_best, ModelCheckpoint)
    every_n_steps, validate_every_n_steps = config.trainer.log_every_n_steps, config.validation.every_n_steps
    keep_last = LastCheckpoint(
        checkpoints,
        files,
        every_n_steps=config.checkpoint.every_n_steps,
        validate_every_n_steps=validate_every_n_steps,
    )
    average = None if config.ema is None else ExponentialMovingAverage(config.ema)
    history, end = History(folder, every_n_steps=every_n_steps), StopAtEnd(config.trainer.max_seconds)
    watching: list[Callback] = [] if average is None else [average]
    watching += attention_pictures(config, parts.tokenizers, folder)
    if config.trainer.compile:
        watching.append(CompiledLayers())
    if config.divergence is not None:
        guard = UpdateGuard(
            config.divergence.loss_factor, judge_gradients=choose_precision(config.trainer) != "16-mixed"
        )
        parts.task.guard = guard
        watching.append(
            RollBack(
                config.divergence, guard, keep_last, keep_best, average, history, console, every_n_steps=every_n_steps
            )
        )
    trainer = build_trainer(
        config,
        folder,
        [
            ProgressReport(console, end, every_n_steps=every_n_steps, validate_every_n_steps=validate_every_n_steps),
            history,
            end,
            TokensSeen(),
            LambdaCallback(on_train_start=lambda trainer, task: started()),
            *watching,
            *stopping,
            keep_best,
            *keep_latest(config, checkpoints),
            keep_last,
        ],
        files,
    )
    if parts.report is not None and trainer.is_global_zero:
        (folder / REPORT).write_text(json.dumps(parts.report.to_plain(), indent=1) + "\n", encoding="utf-8")
        draw_lengths(parts.report, folder / LENGTHS, max_length=config.model.max_length)
    with warnings.catch_warnings(), keep_last.catching_interrupts():
        # The loader is a list lookup: more workers than asked for would not help.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # So many were asked for.
        warnings.filterwarnings("ignore", "This DataLoader will create .* worker processes")
        # A resumed run finds its own checkpoints.
        warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
        # Lightning reports the length of its loggers' intervals; ours are in the configuration.
        warnings.filterwarnings("ignore", ".*is smaller than the logging interval.*")
        # Validation values are complete, on every rank, before they are logged.
        warnings.filterwarnings("ignore", ".*It is recommended to use `self.log.*sync_dist=True.*")
        # The whole run is one epoch, so its loader's length is the run's.
        warnings.filterwarnings("ignore", ".*`max_epochs` was not set.*")
        # What the settings no longer ask for is left out.
        warnings.filterwarnings("ignore", "Be aware that when using `ckpt_path`")
        if choose_precision(config.trainer) == "64-true":
            parts.task.double()  # Lightning does so only after a checkpoint is loaded, which would be rounded
        try:
            trainer.fit(parts.task, datamodule=parts.data, ckpt_path=last if resume else None, weights_only=True)
        except Exception:
            # Such as a full disk, which only the process that writes sees: the others would wait for it for ever.
            launcher = trainer.strategy.launcher
            if isinstance(launcher, _SubprocessScriptLauncher):
                launcher.kill(signal.SIGKILL)
                launcher.procs.clear()  # Lightning watches this list, and would kill this process for their end
            raise
        finally:
            # Whatever goes wrong in Lightning's own clean-up, workers end, or this process would wait for them at exit.
            trainer.fit_loop.teardown()
    files.finish()
    for callback in stopping:
        if isinstance(callback, EarlyStopping) and callback.stopping_reason_message:
            console.print(f"stopped early: {callback.stopping_reason_message}", highlight=False)
    if trainer.is_global_zero:
        draw_curve(read_history(folder / METRICS), folder / CURVE, title=folder.name)
    best_step, best_value = trainer.global_step, float("nan")
    model = parts.task.model
    if keep_best.best_model_path:
        best = load_checkpoint(Path(keep_best.best_model_path))
        parts.task.load_state_dict(best["state_dict"])
        best_step = int(best["global_step"])
        assert keep_best.best_model_score is not None
        best_value = float(keep_best.best_model_score)
        if not math.isfinite(best_value):
            raise ValueError(
                f"the run has diverged: `{config.checkpoint.monitor}` was never a finite number. Give a smaller "
                f"optimizer.learning_rate or a longer scheduler.warmup_steps."
            )
    if config.trainer.compile:
        model = copy.deepcopy(model)  # a copy is not compiled
    bundle = as_bundle(config, model.cpu().float().eval(), parts.tokenizers)
    return RunResult(bundle, best_step, trainer.global_step, best_value, str(trainer.strategy.root_device))


def check_room_for_run(config: TrainConfig, num_parameters: int, checkpoints: Path) -> None:
    """Refuse a run whose checkpoints would not fit on the disk; those that it already has count as room.

    A checkpoint holds the weights, at most two moments of each, and an average of them if asked for. There are the best
    and the latest ones, ``last.ckpt``, and one that is being written.

    Args:
        config: the run's settings.
        num_parameters: of its model.
        checkpoints: where they are written.

    Raises:
        ValueError: there is too little room.
    """
    copies = 3 if config.ema is None else 4
    bytes_each = 8 if choose_precision(config.trainer) == "64-true" else 4
    number = config.checkpoint.keep_best + config.checkpoint.keep_latest + 2
    there = sum(path.stat().st_size for path in checkpoints.glob("*.ckpt"))
    needed = bytes_each * copies * num_parameters * number - there
    check_room(checkpoints, needed, f"a run that keeps {number - 1} checkpoints")
