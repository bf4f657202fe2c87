"""The commands in processes of their own, as tests start them."""

import os
import subprocess
import sys
import time
from pathlib import Path

from transformer.training.history import read_history

SMALL = [
    *("data.num_train=60", "data.num_validation=4", "data.num_test=4", "tokenizer.vocab_size=300"),
    *("model.d_model=16", "model.num_heads=2", "model.d_ff=32", "batching.max_tokens_per_batch=600"),
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1", "validation.num_generated=2"),
    *("scheduler.warmup_steps=1", "trainer.precision=32-true", "trainer.max_steps=2", "decoding.max_new_tokens=4"),
]


def environment(home: Path) -> dict[str, str]:
    """A user's, with an empty home of its own."""
    home.mkdir(exist_ok=True)
    own = {"HOME": str(home), "COLUMNS": "120", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    return {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "WANDB_"))} | own


def run(
    folder: Path, command: str, *arguments: str, stdin: str = "", status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder / "here"``."""
    here = folder / "here"
    here.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", f"transformer.cli.{command}", *arguments],
        cwd=here,
        env=environment(folder / "home"),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == status, done.stderr
    return done


def endless_run(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a run in ``folder``, from the folder above it, and come back when it has made three steps."""
    folder.parent.mkdir()
    endless = ["trainer.max_steps=100000", "validation.every_n_steps=100000", "trainer.log_every_n_steps=1"]
    where = f"hydra.run.dir='{folder.name}'"
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer.cli.train", *SMALL, *endless, where, *arguments],
        cwd=folder.parent,
        env=environment(folder.parents[1] / "home"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of processes of its own
    )
    deadline = time.monotonic() + 120
    while len(read_history(folder / "metrics.jsonl")) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process
