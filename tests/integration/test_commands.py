"""The commands as a user runs them: each in a process of its own, in a folder of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transformer.bundle import load_bundle
from transformer.training.checkpoints import load_checkpoint
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


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(240)
def test_train_evaluate_translate(tmp_path: Path) -> None:
    trained = run(tmp_path, "train", *SMALL)
    assert trained.stdout == ""
    assert "Warning" not in trained.stderr
    [folder] = (tmp_path / "here" / "runs" / "phrases_en_de").iterdir()
    found = files(folder)
    assert {"config.yaml", "metrics.jsonl", "curve.png", "checkpoints/last.ckpt", "bundle/README.md"} <= found
    shown = folder.relative_to(tmp_path / "here")
    assert f"training in {shown}" in trained.stderr
    assert f"curve   {shown}/curve.png" in trained.stderr
    assert f"bundle  {shown}/bundle" in trained.stderr
    assert {path.split("/")[0] for path in files(tmp_path / "here")} == {"runs"}
    caches = (".cache/trueformer/", ".cache/matplotlib/", ".cache/huggingface/")
    assert {name for name in files(tmp_path / "home") if not name.startswith(caches)} <= {
        ".config/matplotlib/fontlist.json"
    }
    assert {name.split("/")[2].split("-")[0] for name in files(tmp_path / "home") if "trueformer" in name} == {
        *("texts", "tokenizer", "ids")
    }
    assert "\nkept all 60 pairs\n" in trained.stderr

    evaluated = run(tmp_path, "evaluate", f"bundle={shown}/bundle", "accelerator=cpu")
    scores = [json.loads(line) for line in evaluated.stdout.splitlines()]
    assert [score["name"] for score in scores] == ["bleu", "chrf", "ter", "exact_match", "loss", "perplexity"]
    card = (folder / "bundle" / "README.md").read_text(encoding="utf-8")
    for score in scores:  # the card tells the same
        how = score["how"].replace("|", "\\|")  # a bar inside a cell would end it
        assert f"| {score['name']} | {score['value']:.4f} | `{how}` |" in " ".join(card.split())

    lines = ["the answer is seven", "", "on May 4, 1999"]
    translated = run(tmp_path, "translate", f"{shown}/bundle", "--device", "cpu", stdin="\n".join(lines) + "\n")
    assert translated.stdout.count("\n") == 3
    assert translated.stdout.split("\n")[1] == ""
    tokenizer = load_bundle(folder / "bundle").target_tokenizer
    assert all(len(tokenizer.encode(line)) <= 12 for line in translated.stdout.split("\n"))


@pytest.mark.timeout(240)
def test_a_sweep_from_an_own_folder_of_settings(tmp_path: Path) -> None:
    own = tmp_path / "my settings" / "experiment"
    own.mkdir(parents=True)
    small = "".join(f"  {line}\n" for line in ("num_train: 60", "num_validation: 4", "num_test: 4"))
    text = "# @package _global_\ndefaults:\n  - phrases_en_de\n  - _self_\n\nlabel_smoothing: 0.25\ndata:\n"
    (own / "mine.yaml").write_text(text + small, encoding="utf-8")
    sweep = ["-m", "--config-dir", str(own.parent), "experiment=mine", *SMALL, "seed=1,2"]
    run(tmp_path, "train", *sweep)
    [folder] = (tmp_path / "here" / "runs" / "mine").iterdir()
    assert folder.name.startswith("sweep_")
    jobs = sorted(path for path in folder.iterdir() if path.is_dir())
    assert [job.name for job in jobs] == ["0", "1"]
    weights = set()
    for seed, job in enumerate(jobs, start=1):
        settings = (job / "config.yaml").read_text(encoding="utf-8")
        assert f"seed: {seed}\n" in settings
        assert "label_smoothing: 0.25\n" in settings
        weights.add((job / "bundle" / "model.safetensors").read_bytes())
    assert len(weights) == 2


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_help_names_groups_and_options(tmp_path: Path, command: str) -> None:
    shown = run(tmp_path, command, "--help").stdout
    assert f"transformer-{command}" in shown
    assert "decoding: beam, greedy, mbr, sample" in shown
    there = {"train": "csv_pairs, fineweb, hub_pairs, hub_text, ", "evaluate": "those of transformer-train"}
    assert f"data: {there[command]}" in shown
    assert files(tmp_path / "here") == set()


@pytest.mark.timeout(240)
def test_loggers_write_into_the_run_alone(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    run(tmp_path, "train", *SMALL, "loggers=[{name: tensorboard}, {name: wandb}]", "hydra.run.dir=run")
    here = files(tmp_path / "here")
    assert {name.split("/")[0] for name in here} == {"run"}
    for wanted in ("run/tensorboard/events.out.tfevents.", "run/wandb/offline-run-"):
        assert any(name.startswith(wanted) for name in here)
    # wandb keeps debugging logs of its own where all programs of a user do.
    ours = [name for name in files(tmp_path / "home") if not name.startswith(".cache/wandb/logs/")]
    assert [name for name in ours if "wandb" in name or "events" in name] == []


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
