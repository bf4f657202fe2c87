"""``transformer-train`` around the run itself: where it writes, what it resumes, how it ends."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from transformer.cli import train as command
from transformer.data.report import CorpusReport, PreparationReport
from transformer.training import run as training
from transformer.training.checkpoints import RunInterrupted
from transformer.training.config import TrainConfig

SMALL = [
    *("data.num_train=60", "data.num_validation=4", "data.num_test=4", "tokenizer.vocab_size=300"),
    *("model.d_model=16", "model.num_heads=2", "model.d_ff=32", "batching.max_tokens_per_batch=600"),
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1", "validation.num_generated=2"),
    *("scheduler.warmup_steps=2", "trainer.precision=32-true", "trainer.max_steps=2", "decoding.max_new_tokens=4"),
]


@pytest.fixture
def trained(run_command: Callable[..., Any]) -> Path:
    """The folder of a finished run of two steps; its name needs quotes everywhere."""
    result = run_command(command.main, *SMALL, "hydra.run.dir='runs/a run, no=1'")
    assert result.status == 0, result.err
    assert "Traceback" not in result.err
    return Path("runs/a run, no=1")


def test_a_run_leaves_its_folder_complete(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {
        *("bundle", "checkpoints", "config.yaml", "csv", "curve.png", "metrics.jsonl", "tokenizers"),
        *("preparation.json", "lengths.png"),
    }
    stored = OmegaConf.to_container(OmegaConf.load(trained / "config.yaml"))
    assert isinstance(stored, dict)
    config = TrainConfig.from_plain({str(key): value for key, value in stored.items()})
    assert (config.trainer.max_steps, config.model.d_model) == (2, 16)
    assert list(Path.cwd().iterdir()) == [Path.cwd() / "runs"]


def test_a_finished_run_has_nothing_to_do(
    trained: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train", lambda *_, **__: pytest.fail("training began"))
    before = (trained / "config.yaml").read_text()
    for arguments in ([], ["trainer.max_steps=1"]):
        result = run_command(command.main, f"resume={trained}", *arguments)
        assert result.status == 0
        assert "already has 2 optimizer steps" in result.err
        assert "nothing to do" in result.err
    assert (trained / "config.yaml").read_text() == before


def test_a_run_may_be_made_longer(trained: Path, run_command: Callable[..., Any]) -> None:
    result = run_command(command.main, f"resume={trained}", "trainer.max_steps=3")
    assert result.status == 0, result.err
    steps = [line for line in (trained / "metrics.jsonl").read_text().splitlines() if "validation/loss" in line]
    assert len(steps) == 2
    assert '"step": 3' in steps[-1]
    assert "of 3, the best by" in (trained / "bundle" / "README.md").read_text()
    assert OmegaConf.load(trained / "config.yaml").trainer.max_steps == 3


def test_a_run_that_lacks_only_its_bundle_gets_it(trained: Path, run_command: Callable[..., Any]) -> None:
    weights = (trained / "bundle" / "model.safetensors").read_bytes()
    (trained / "bundle" / "config.json").unlink()  # it is written last
    result = run_command(command.main, f"resume={trained}")
    assert result.status == 0, result.err
    assert (trained / "bundle" / "config.json").is_file()
    assert (trained / "bundle" / "model.safetensors").read_bytes() == weights


def test_a_run_may_have_been_moved(trained: Path, run_command: Callable[..., Any]) -> None:
    moved = trained.rename("moved")
    result = run_command(command.main, f"resume={moved}", "trainer.max_steps=3")
    assert result.status == 0, result.err
    assert "warn" not in result.err.lower()
    assert len(list((moved / "checkpoints").glob("best-*.ckpt"))) == 1
    assert not trained.exists()


def test_what_a_run_rests_on_cannot_change(
    trained: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train", lambda *_, **__: pytest.fail("training began"))
    before = (trained / "config.yaml").read_text()
    for change, message in (
        ("tokenizer.vocab_size=400", "`tokenizer.vocab_size` cannot change when a run is resumed: it was 300 and is"),
        ("model.d_ff=64", "`model.d_ff` cannot change when a run is resumed: it was 32 and is now 64."),
        ("optimizer.learning_rate=0.5", "`optimizer.learning_rate` cannot change"),
        ("seed=2", "`seed` cannot change when a run is resumed: it was 1 and is now 2."),
        ("batching.max_tokens_per_batch=700", "`batching.max_tokens_per_batch` cannot change"),
        ("trainer.accumulate_grad_batches=2", "`trainer.accumulate_grad_batches` cannot change"),
        ("data.num_train=61", "`data.num_train` cannot change when a run is resumed: it was 60 and is now 61."),
        ("trainer.devices=2", "`trainer.devices` cannot change when a run is resumed: it was 1 and is now 2."),
        ("batching.over_long=skip", "`batching.over_long` cannot change when a run is resumed: it was None and is now"),
        ("trainer.max_stesp=3", "`trainer.max_stesp` is not a setting; did you mean `max_steps`?"),
    ):
        result = run_command(command.main, f"resume={trained}", "trainer.max_steps=3", change)
        assert result.status == 2
        assert message in result.err
    assert (trained / "config.yaml").read_text() == before


def test_the_files_of_a_run_may_move(run_settings: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    before = TrainConfig.from_plain(run_settings("text"))
    OmegaConf.save(OmegaConf.create(before.to_plain()), run / "config.yaml")
    elsewhere = TrainConfig.from_plain(run_settings("text", {"data.folder": "elsewhere"}))
    command._refuse_changes(elsewhere, run)
    other = TrainConfig.from_plain(run_settings("text", {"data.folder": "elsewhere", "data.train": "other.txt"}))
    with pytest.raises(ValueError, match=r"`data\.train` cannot change when a run is resumed: it was 'text\.txt'"):
        command._refuse_changes(other, run)


@pytest.mark.parametrize("group", ["data=text_pairs", "model=lm_tiny", "tokenizer=char"])
def test_the_default_experiment_takes_no_other_parts(run_command: Callable[..., Any], group: str) -> None:
    result = run_command(command.main, group)
    assert result == (
        2,
        "",
        f"error: `{group.partition('=')[0]}=...` needs an experiment to go with: experiment=translation for sentence "
        "pairs, experiment=language_model for texts, or one of your own.\n",
    )
    assert list(Path.cwd().iterdir()) == []


def test_parts_for_an_experiment_that_takes_them(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    monkeypatch.setattr(command, "_train", lambda config, _: chosen.append(config))
    files = ["data.train=a.txt", "data.validation=b.txt"]
    result = run_command(command.main, "experiment=language_model", "tokenizer=char", "model=llama_tiny", *files)
    assert result.status == 0, result.err
    assert (chosen[0].tokenizer.name, chosen[0].model.activation) == ("char", "swiglu")


def test_the_command_of_the_model_card_makes_the_run_again(trained: Path, run_command: Callable[..., Any]) -> None:
    card = (trained / "bundle" / "README.md").read_text()
    assert "transformer-train --config-dir RUN_FOLDER --config-name config\n" in card
    result = run_command(command.main, "--config-dir", str(trained), "--config-name", "config")
    assert result.status == 0, result.err
    [again] = (Path.cwd() / "runs" / "again").iterdir()
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (again / "bundle" / name).read_bytes() == (trained / "bundle" / name).read_bytes()


@pytest.mark.parametrize(
    ("signum", "saved", "status", "how"),
    [
        (signal.SIGINT, True, 130, "stopped and saved"),
        (signal.SIGINT, False, 130, "stopped at once"),
        (signal.SIGTERM, True, 143, "stopped and saved"),
    ],
)
def test_an_interrupted_run_says_how_to_go_on(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, signum: int, saved: bool, status: int, how: str
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise RunInterrupted(signum, saved=saved)

    monkeypatch.setattr(training, "train", stop)
    result = run_command(command.main, "hydra.run.dir='a run'")
    assert result.status == status
    assert result.err.endswith(f"{how}. Go on with:\n  transformer-train 'resume=a run'\n")


@pytest.mark.parametrize("rank", [0, 1])
def test_other_processes_of_a_run_stay_silent(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    report = PreparationReport(corpora=(CorpusReport(name="a", read=3, kept=3, dropped={}, examples={}),), sides=())

    def train(*_: Any, progress: Callable[..., None], prepared: Callable[..., None], **__: Any) -> None:
        progress("reading a", 1, 3)
        prepared(report)
        raise RunInterrupted(signal.SIGINT, saved=True)

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr("transformer.cli.progress.QUIET_SECONDS", -1.0)
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    result = run_command(command.main, "hydra.run.dir=here")
    if rank:
        assert result == (130, "", "")
        assert not (Path.cwd() / "here" / "config.yaml").exists()
    else:
        begin, *rest = result.err.splitlines()
        assert begin == "training in here"
        assert rest == [
            "reading a: 1 of 3",
            "kept all 3 rows",
            "",
            *("stopped and saved. Go on with:", "  transformer-train resume=here"),
        ]
