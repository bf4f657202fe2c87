"""How runs end: by Ctrl-C, by signals to one or all processes, by errors; and several ranks together."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import SMALL, endless_run, environment, run

from transformer.bundle import load_bundle
from transformer.training.checkpoints import load_checkpoint
from transformer.training.history import read_history


@pytest.mark.timeout(240)
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "here" / "my run"
    process = endless_run(folder)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in messages
    assert messages.endswith("stopped and saved. Go on with:\n  transformer-train 'resume=my run'\n")
    step = load_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"]
    assert 3 <= step < 100_000

    resumed = run(tmp_path, "train", "resume=my run", f"trainer.max_steps={step + 2}")
    assert "resuming my run" in resumed.stderr
    steps = [entry["step"] for entry in read_history(folder / "metrics.jsonl") if "train/loss" in entry]
    assert steps == list(range(1, step + 3))
    assert load_bundle(folder / "bundle").config.model.d_model == 16


@pytest.mark.timeout(240)
def test_a_signal_to_all_processes_of_a_run_with_workers_saves_it(tmp_path: Path) -> None:
    """As service managers and batch systems send it at the end."""
    folder = tmp_path / "here" / "run"
    process = endless_run(folder, "batching.num_workers=1")
    os.killpg(process.pid, signal.SIGTERM)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert messages.endswith("stopped and saved. Go on with:\n  transformer-train resume=run\n")
    assert "Traceback" not in messages
    assert load_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"] >= 3


FULL_DISK = """
import os
from transformer.cli import train
from transformer.training import background_saves

def full(folder, needed, what):
    raise ValueError("the disk is full")

background_saves.check_room = full  # asked by the process that writes
train.main()
"""


BROKEN_LOGS = """
from lightning.pytorch.loggers import CSVLogger
from transformer.cli import train
from transformer.training.history import History

def broken(*given, **named):
    raise OSError("no space left")

History.record = CSVLogger.finalize = broken  # the second in Lightning's clean-up after the first
train.main()
"""


@pytest.mark.timeout(240)
def test_a_run_with_workers_ends_though_the_clean_up_fails(tmp_path: Path) -> None:
    """Otherwise Python waits for the workers at exit, and they for work."""
    (tmp_path / "program.py").write_text(BROKEN_LOGS)
    process = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), *SMALL, "batching.num_workers=1", "hydra.run.dir=run"],
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 1
    assert "no space left" in process.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_error_of_the_rank_that_writes_ends_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FULL_DISK)
    here = tmp_path / "here"
    here.mkdir()
    ranks = ["trainer.devices=2", "trainer.strategy=ddp"]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), *SMALL, *ranks, "hydra.run.dir=two"],
        cwd=here,
        env=environment(tmp_path / "home"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, messages = process.communicate(timeout=200)  # the other rank holds the same stream until it ends
    assert process.returncode == 2
    assert messages.endswith("error: the disk is full\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_LOSS_03_two_ranks_are_one_with_twice_the_batches(tmp_path: Path) -> None:
    """Gradients of all ranks weigh by tokens: two ranks end where one ends that accumulates two batches."""
    even = [  # ten batches, so that two ranks divide none
        "data.num_train=90",
        "batching.max_tokens_per_batch=400",
        "trainer.max_steps=4",
        "trainer.log_every_n_steps=3",
        "validation.every_n_steps=2",
        "validation.num_generated=4",
        "validation.num_shown=4",
    ]
    alone = run(tmp_path, "train", *SMALL, *even, "trainer.accumulate_grad_batches=2", "hydra.run.dir=one")
    ranks = run(tmp_path, "train", *SMALL, *even, "trainer.devices=2", "trainer.strategy=ddp", "hydra.run.dir=two")
    assert ranks.stderr.count("training in two") == 1
    assert ranks.stderr.count("scores on the test split") == 1
    assert "Warning" not in ranks.stderr
    folders = [tmp_path / "here" / name for name in ("one", "two")]
    one, two = (load_checkpoint(folder / "checkpoints" / "last.ckpt") for folder in folders)
    assert one["global_step"] == two["global_step"] == 4
    for name, tensor in one["state_dict"].items():
        if name.startswith("model."):
            assert (tensor - two["state_dict"][name]).norm() <= 1e-5 * tensor.norm(), name
    assert losses_of(folders[0], "validation/loss") == pytest.approx(losses_of(folders[1], "validation/loss"), rel=1e-5)
    # EVAL-01: what is scored and shown are the translations of all ranks.
    translations = [[line for line in each.stderr.splitlines() if line.startswith("  ")] for each in (alone, ranks)]
    assert sum("at 6:22 AM" in line for line in translations[0]) == 2  # in both validations
    assert translations[0] == translations[1]

    run(tmp_path, "train", "resume=two", "trainer.max_steps=6")
    run(tmp_path, "train", "resume=one", "trainer.max_steps=6")
    one, two = (load_checkpoint(folder / "checkpoints" / "last.ckpt") for folder in folders)
    assert one["global_step"] == two["global_step"] == 6
    for name, tensor in one["state_dict"].items():
        if name.startswith("model."):
            assert (tensor - two["state_dict"][name]).norm() <= 1e-5 * tensor.norm(), name
    # That of step 6 is over three steps, the first of which is from before the resumption, on either rank.
    first, second = (losses_of(folder, "train/loss") for folder in folders)
    assert len(first) == 2
    assert first == pytest.approx(second, rel=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_signal_that_reaches_one_of_two_ranks_saves_and_ends_both(tmp_path: Path) -> None:
    folder = tmp_path / "here" / "two"
    process = endless_run(folder, "trainer.devices=2", "trainer.strategy=ddp")
    process.send_signal(signal.SIGTERM)  # to the first rank alone
    _, messages = process.communicate(timeout=60)  # the other holds the same stream until it ends
    assert process.returncode == 128 + signal.SIGTERM
    assert messages.count("stopped and saved. Go on with:\n  transformer-train resume=two\n") == 1
    assert "Traceback" not in messages
    step = load_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"]
    assert 3 <= step < 100_000
    run(tmp_path, "train", "resume=two", f"trainer.max_steps={step + 1}")


def losses_of(folder: Path, name: str) -> list[float]:
    """A loss in all entries of a run's history that have it."""
    return [entry[name] for entry in read_history(folder / "metrics.jsonl") if name in entry]
