"""A run that is killed and resumed ends exactly where the uninterrupted run ends, bit for bit."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train
from transformer.training.task import Task

MODEL = {"d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.2}
TRANSLATION: dict[str, Any] = {
    "data": {"name": "phrases", "num_train": 90, "num_validation": 6, "num_test": 4},
    "tokenizer": {"name": "bpe", "vocab_size": 300},
    "batching": {"max_tokens_per_batch": 600},
    "model": {
        "name": "encoder_decoder", "num_encoder_layers": 1, "num_decoder_layers": 1, "max_length": 100, **MODEL,
    },
    "validation": {"every_n_steps": 4, "num_generated": 2},
}  # fmt: skip
TEXT: dict[str, Any] = {
    "data": {"name": "plain_text", "train": "text.txt", "validation_fraction": 0.2},
    "tokenizer": {"name": "byte"},
    "batching": {"max_tokens_per_batch": 64},
    "model": {"name": "decoder_only", "num_layers": 1, "max_length": 16, **MODEL},
    "validation": {"every_n_steps": 4, "num_shown": 1},
}
RUN: dict[str, Any] = {
    "optimizer": {"name": "adamw", "learning_rate": 1e-2, "weight_decay": 0.1},
    "scheduler": {"name": "inverse_sqrt", "warmup_steps": 4},
    "trainer": {"max_epochs": 2, "accelerator": "cpu", "devices": 1, "precision": "32-true", "log_every_n_steps": 1},
    "checkpoint": {"every_n_steps": 3},
    "decoding": {"name": "greedy", "max_new_tokens": 4},
    "label_smoothing": 0.1,
}
QUIET = Console(quiet=True)


class KilledError(Exception):
    """Stands in for the end of the process: nothing in the run handles it."""


@pytest.fixture(params=["translation", "text"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of a run of two epochs."""
    chosen = {**RUN, **(TRANSLATION if request.param == "translation" else TEXT)}
    if request.param == "text":
        (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 20)
        chosen["data"] = {**chosen["data"], "folder": str(tmp_path)}
    return chosen


def with_trainer(settings: dict[str, Any], **changes: Any) -> TrainConfig:
    return TrainConfig.from_plain({**settings, "trainer": {**settings["trainer"], **changes}})


def run_and_record(config: TrainConfig, folder: Path, order: list[list[int]], *, resume: bool = False) -> None:
    """Train, appending the examples of every batch to ``order``."""
    original = Task.training_step

    def recording(self: Task, batch: Any, batch_idx: int) -> torch.Tensor:
        order.append([*batch.index_B.tolist()])
        return original(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "training_step", recording)
        train(config, folder, QUIET, resume=resume)


def run_until(config: TrainConfig, folder: Path, batch: int, *, resume: bool = False) -> None:
    """Train and die while batch number ``batch`` is computed."""
    original = Task.training_step

    def dying(self: Task, examples: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == batch:
            raise KilledError
        return original(self, examples, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "training_step", dying)
        with pytest.raises(KilledError):
            train(config, folder, QUIET, resume=resume)


def assert_same_end(folder: Path, other: Path) -> None:
    """Weights, optimizer, schedule, kept best checkpoint and metrics are equal."""
    one, two = (load_checkpoint(path / "checkpoints" / "last.ckpt") for path in (folder, other))
    assert one["global_step"] == two["global_step"]
    assert all(torch.equal(one["state_dict"][name], two["state_dict"][name]) for name in one["state_dict"])
    assert one.keys() == two.keys()
    if "raw_weights" in one:
        assert all(torch.equal(one["raw_weights"][name], two["raw_weights"][name]) for name in one["raw_weights"])
    states = zip(tensors(one["optimizer_states"]), tensors(two["optimizer_states"]), strict=True)
    assert all(torch.equal(a, b) for a, b in states)
    assert one["lr_schedulers"] == two["lr_schedulers"]
    assert read_history(folder / "metrics.jsonl") == read_history(other / "metrics.jsonl")
    names = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (folder, other)]
    assert names[0] == names[1]


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors(inner)


FEATURES: dict[str, Any] = {  # with a rate at which updates are skipped and the run goes back several times
    "optimizer": {"name": "adamw", "learning_rate": 1.0, "weight_decay": 0.1},
    "ema": {"decay": 0.8, "start_step": 2},
    "divergence": {"loss_factor": 1.2, "max_skips": 2, "max_rollbacks": 99},
    "checkpoint": {"every_n_steps": 3, "keep_best": 2, "keep_latest": 2},
}


@pytest.mark.parametrize(("accumulate", "features"), [(1, False), (2, False), (1, True)])
def test_resumed_from_any_batch_equals_uninterrupted(
    settings: dict[str, Any], tmp_path: Path, accumulate: int, features: bool
) -> None:
    config = with_trainer(settings | (FEATURES if features else {}), accumulate_grad_batches=accumulate)
    whole: list[list[int]] = []
    run_and_record(config, tmp_path / "whole", whole)
    entries = read_history(tmp_path / "whole" / "metrics.jsonl")
    for event in ("skipped_updates", "rolled_back_to"):
        assert any(event in entry for entry in entries) == features
    per_epoch = len(whole) // 2
    first_epoch = list(itertools.chain.from_iterable(whole[:per_epoch]))
    assert sorted(first_epoch) != first_epoch
    assert whole[:per_epoch] != whole[per_epoch:]
    first_save = 3 * accumulate
    for batch in range(first_save, len(whole), 3 if accumulate == 2 or features else 1):
        folder = tmp_path / f"killed-{batch}"
        run_until(config, folder, batch)
        saved = load_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"] * accumulate
        rest: list[list[int]] = []
        run_and_record(config, folder, rest, resume=True)
        assert rest == whole[saved:]
        assert_same_end(tmp_path / "whole", folder)


def test_killed_twice_with_other_numbers_of_workers(settings: dict[str, Any], tmp_path: Path) -> None:
    config = with_trainer(settings)
    workers = TrainConfig.from_plain({**settings, "batching": {**settings["batching"], "num_workers": 2}})
    whole: list[list[int]] = []
    run_and_record(config, tmp_path / "whole", whole)
    middle = len(whole) // 2 + 1
    run_until(workers, tmp_path / "killed", middle)
    run_until(config, tmp_path / "killed", middle + 3, resume=True)
    run_and_record(workers, tmp_path / "killed", [], resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "killed")


def command(settings: dict[str, Any], folder: Path, workers: int) -> list[str]:
    """A run's command line; the pause gives the killer time between two steps."""
    config = TrainConfig.from_plain({**settings, "batching": {**settings["batching"], "num_workers": workers}})
    program = (
        "import sys, time, pathlib\n"
        "from rich.console import Console\n"
        "from transformer.training.config import TrainConfig\n"
        "from transformer.training.run import train\n"
        "from transformer.training.task import Task\n"
        "original = Task.training_step\n"
        "def slow(self, batch, batch_idx):\n"
        "    time.sleep(0.02)\n"
        "    return original(self, batch, batch_idx)\n"
        "Task.training_step = slow\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "config = TrainConfig.model_validate_json(sys.argv[2])\n"
        "train(config, folder, Console(quiet=True), resume=(folder / 'checkpoints/last.ckpt').exists())\n"
    )
    return [sys.executable, "-c", program, str(folder), config.model_dump_json()]


@pytest.mark.parametrize("workers", [0, 2])
def test_sigkill_in_the_second_epoch(settings: dict[str, Any], tmp_path: Path, workers: int) -> None:
    whole: list[list[int]] = []
    run_and_record(with_trainer(settings), tmp_path / "whole", whole)
    folder = tmp_path / "killed"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command(settings, folder, workers), env=environment, start_new_session=True)
    target = random.Random(time.time_ns()).randrange(len(whole) // 2 + 1, len(whole) - 1)
    deadline = time.monotonic() + 90
    while not any(entry["step"] >= target for entry in read_history(folder / "metrics.jsonl")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert load_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"] < len(whole)
    subprocess.run(command(settings, folder, workers), env=environment, check=True, timeout=90)
    assert_same_end(tmp_path / "whole", folder)
