"""A run killed with SIGKILL again and again, at whatever it is doing, ends as the run that nobody killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.training.checkpoints import load_checkpoint

NUM_KILLS = 20

# Loads the libraries once; then a process of its own for every run, which logs the examples of each batch.
STARTER = """
import json, os, sys
from pathlib import Path
from rich.console import Console
from transformer.training.config import TrainConfig
from transformer.training.run import train
from transformer.training.task import Task

def run(request):
    folder, original = Path(request["folder"]), Task.training_step
    folder.mkdir(parents=True, exist_ok=True)
    log = (folder / "examples.log").open("a")

    def logged(self, batch, batch_idx):
        log.write(json.dumps([batch_idx, batch.index_B.tolist()]) + "\\n")
        log.flush()
        return original(self, batch, batch_idx)

    Task.training_step = logged
    config = TrainConfig.from_plain(request["settings"])
    resume = (folder / "checkpoints" / "last.ckpt").exists()
    train(config, folder, Console(quiet=True), resume=resume)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            run(json.loads(line))
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def starter() -> Iterator[subprocess.Popen[str]]:
    """The process that starts runs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    yield process
    process.communicate(timeout=60)
    deadline = time.monotonic() + 60  # the workers of killed runs end by themselves
    while _has_processes(process.pid):
        assert time.monotonic() < deadline, "workers of killed runs are still there"
        time.sleep(0.2)


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def settings_of(tmp_path: Path, *, streaming: bool) -> dict[str, Any]:
    """A run of some seconds on 6,000 pairs."""
    digits = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    numbers = [f"{number:04}" for number in range(6000)]
    for split, chosen in (("train", numbers), ("valid", numbers[:20])):
        source = "".join(" ".join(number) + f" number {number}\n" for number in chosen)
        target = "".join(" ".join(digits[int(digit)] for digit in number) + "\n" for number in chosen)
        (tmp_path / f"{split}.source").write_text(source)
        (tmp_path / f"{split}.target").write_text(target)
    preparation: dict[str, Any] = {"cache_folder": str(tmp_path / "cache")}
    if streaming:
        preparation |= {"streaming": True, "shuffle_buffer": 700}
    return {
        "data": {
            "name": "parallel_text", "folder": str(tmp_path), "train_source": "train.source",
            "train_target": "train.target", "validation_source": "valid.source", "validation_target": "valid.target",
        },
        "preparation": preparation,
        "tokenizer": {"name": "bpe", "vocab_size": 400, "dropout": 0.1},
        "batching": {"max_tokens_per_batch": 1500, "num_workers": 1},
        "model": {
            "name": "encoder_decoder", "num_encoder_layers": 1, "num_decoder_layers": 1, "max_length": 60,
            "d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.2,
        },
        "optimizer": {"name": "adamw", "learning_rate": 1e-2},
        "scheduler": {"name": "inverse_sqrt", "warmup_steps": 4},
        "trainer": {"max_steps": 240, "accelerator": "cpu", "devices": 1, "precision": "32-true"},
        "validation": {"every_n_steps": 40, "num_generated": 0, "num_shown": 0},
        "checkpoint": {"every_n_steps": 3, "keep_best": 2, "keep_latest": 2},
        "ema": {"decay": 0.9, "start_step": 5},
        "decoding": {"name": "greedy"},
        "label_smoothing": 0.1,
    }  # fmt: skip


def start(starter: subprocess.Popen[str], settings: dict[str, Any], folder: Path) -> int:
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(json.dumps({"settings": settings, "folder": str(folder)}) + "\n")
    starter.stdin.flush()
    return int(starter.stdout.readline())


def status(starter: subprocess.Popen[str]) -> int:
    assert starter.stdout is not None
    return int(starter.stdout.readline())


def examples_of(folder: Path) -> list[list[int]]:
    """The examples of every batch, the latest time it was computed: what came after the last save is done again."""
    batches: dict[int, list[int]] = {}
    for line in (folder / "examples.log").read_text().splitlines():
        try:
            number, examples = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off by a kill
        batches[number] = examples
    assert sorted(batches) == list(range(len(batches)))
    return [batches[number] for number in range(len(batches))]


def kill_at(pid: int, moment: str, folder: Path, cache: Path, rng: random.Random) -> None:
    """Kill a run in its preparation, in the middle of a checkpoint, or some time into its training."""
    log = folder / "examples.log"
    size, deadline = log.stat().st_size if log.exists() else 0, time.monotonic() + 60

    def reached() -> bool:
        if moment == "preparation":
            return any(cache.glob("*.partial"))
        if moment == "checkpoint":
            return any((folder / "checkpoints").glob(".*.partial"))
        return log.exists() and log.stat().st_size > size

    while not reached() and os.path.exists(f"/proc/{pid}/stat"):
        assert time.monotonic() < deadline, f"never reached: {moment}"
        time.sleep(0.0002)
    if moment != "checkpoint":
        time.sleep(rng.uniform(0.0, 0.3 if moment == "preparation" else 0.6))
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_killed_twenty_times_equals_uninterrupted(
    tmp_path: Path, starter: subprocess.Popen[str], streaming: bool
) -> None:
    settings, rng, cache = settings_of(tmp_path, streaming=streaming), random.Random(5), tmp_path / "cache"
    start(starter, settings, tmp_path / "whole")
    assert status(starter) == 0
    shutil.rmtree(cache)
    folder = tmp_path / "killed"
    moments = ["preparation"] * (4 if not streaming else 1) + [
        rng.choice(["checkpoint", "training"]) for _ in range(NUM_KILLS)
    ]
    killed = []
    for moment in moments[:NUM_KILLS]:
        pid = start(starter, settings, folder)
        kill_at(pid, moment, folder, cache, rng)
        if status(starter) == -signal.SIGKILL:
            killed.append(moment)
    assert len(killed) == NUM_KILLS, "the run ended before it was killed often enough"
    assert {"preparation", "checkpoint", "training"} == set(killed)
    start(starter, settings, folder)
    assert status(starter) == 0
    assert examples_of(folder) == examples_of(tmp_path / "whole")
    one, two = (load_checkpoint(run / "checkpoints" / "last.ckpt") for run in (folder, tmp_path / "whole"))
    assert one["global_step"] == two["global_step"] == 240
    assert all(torch.equal(one["state_dict"][name], two["state_dict"][name]) for name in two["state_dict"])
