"""``transformer-train`` around the run itself: where it writes, what it resumes, how it ends."""

import copy
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from transformer.cli import data
from transformer.cli import train as command
from transformer.data.preparation.report import CorpusReport, PreparationReport
from transformer.training import run as training
from transformer.training.checkpoints import RunInterrupted
from transformer.training.config import TrainConfig


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


def test_what_a_run_rests_on_cannot_change(
    trained: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train", lambda *_, **__: pytest.fail("training began"))
    before = (trained / "config.yaml").read_text()
    for change, message in (
        ("tokenizer.vocab_size=400", "`tokenizer.vocab_size` cannot change when a run is resumed: it was 300 and is"),
        ("model.d_ff=64", "`model.d_ff` cannot change when a run is resumed: it was 32 and is now 64."),
        ("optimizer.learning_rate=0.5", "`optimizer.learning_rate` cannot change"),
        ("ema={decay: 0.9}", "`ema.decay` cannot change when a run is resumed: it was None and is now 0.9."),
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


TSV = {"name": "tsv", "folder": "old", "train": "a", "validation": "b", "test": "c"}
PARALLEL = {"name": "parallel_text"} | {
    f"{split}_{side}": f"{split}.{side}" for split in ("train", "validation", "test") for side in ("source", "target")
}
HUB = {"name": "hub", "dataset": "old", "source_field": "a", "target_field": "b"}
MIXTURE = {"name": "mixture", "corpora": {"train": TSV, "hub": HUB}, "weights": {"train": 1, "hub": 2}}
FILE = {
    "tokenizer": {"name": "file", "path": "a.json", "target_path": "b.json"},
    "model.tie_embeddings": "none",
}


@pytest.fixture
def refuse_changes(run_settings: Callable[..., Any], tmp_path: Path) -> Callable[..., None]:
    """Go on with a run of some data and tokenizer (or of texts) after changes."""

    def refuse(start: dict[str, Any], changes: dict[str, Any], kind: str = "translation") -> None:
        before, after = (
            TrainConfig.from_plain(run_settings(kind, copy.deepcopy(each))) for each in (start, start | changes)
        )
        OmegaConf.save(OmegaConf.create(before.to_plain()), tmp_path / "config.yaml")
        command._refuse_changes(after, tmp_path)

    return refuse


def test_the_files_of_a_run_may_move(refuse_changes: Callable[..., None], tmp_path: Path) -> None:
    folder = str(tmp_path)
    refuse_changes({}, {"data.folder": "elsewhere", "data.train": "other.txt"}, kind="text")
    refuse_changes({"data": TSV}, {"data.folder": "new", "data.train": ["x", "y"], "data.test": "z"})
    refuse_changes({"data": PARALLEL}, {f"data.{name}": "new" for name in PARALLEL if name != "name"})
    refuse_changes({"data": HUB}, {"data.dataset": folder})
    moved = {
        "data.corpora.train.folder": "new",
        "data.corpora.train.validation": "new",
        "data.corpora.hub.dataset": folder,
    }
    refuse_changes({"data": MIXTURE}, moved)
    refuse_changes(FILE, {"tokenizer.path": "new.json", "tokenizer.target_path": "other.json"})


@pytest.mark.parametrize(
    ("start", "change", "name", "was", "now"),
    [
        ({"data": TSV}, {"data.tag": "<2de>"}, "data.tag", "None", "'<2de>'"),
        ({"data": TSV}, {"data.source_column": 2}, "data.source_column", "0", "2"),
        ({"data": TSV}, {"data.filters": {"max_words": 9}}, "data.filters.max_words", "None", "9"),
        ({"data": TSV}, {"data.test": None}, "data.test", "'c'", "None"),
        ({"data": TSV}, {"data": HUB}, "data.name", "'tsv'", "'hub'"),
        ({"data": HUB}, {"data.dataset": "owner/other"}, "data.dataset", "'old'", "'owner/other'"),
        ({"data": HUB}, {"data.train_split": "all"}, "data.train_split", "'train'", "'all'"),
        ({"data": MIXTURE}, {"data.weights.train": 3}, "data.weights.train", "1.0", "3.0"),
        ({"data": MIXTURE}, {"data.weights": None}, "data.weights.train", "1.0", "None"),
        (
            {"data": MIXTURE},
            {"data.corpora.train.filters": {"identical": True}},
            "data.corpora.train.filters.identical",
            *("False", "True"),
        ),
        (
            {"data": MIXTURE | {"weights": None}},
            {"data.corpora.new": PARALLEL},
            "data.corpora.new.name",
            *("None", "'parallel_text'"),
        ),
        (
            FILE,
            {"tokenizer.special_tokens": {"pad": "[PAD]"}},
            "tokenizer.special_tokens.pad",
            *("'<pad>'", "'[PAD]'"),
        ),
        (FILE, {"tokenizer.target_path": None}, "tokenizer.target_path", "'b.json'", "None"),
    ],
)
def test_the_one_setting_that_cannot_change_is_named(
    refuse_changes: Callable[..., None],
    start: dict[str, Any],
    change: dict[str, Any],
    name: str,
    was: str,
    now: str,
) -> None:
    message = f"`{name}` cannot change when a run is resumed: it was {was} and is now {now}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        refuse_changes(start, change)


def test_the_validation_fraction_of_a_run_is_no_file(refuse_changes: Callable[..., None]) -> None:
    with pytest.raises(ValueError, match=r"^`data\.validation_fraction` cannot change .* was 0\.2 and is now 0\.3\.$"):
        refuse_changes({}, {"data.validation_fraction": 0.3}, kind="text")


@pytest.mark.parametrize("group", ["data=text_pairs", "model=lm_tiny", "tokenizer=char"])
@pytest.mark.parametrize("main", [command.main, data.main])
def test_the_default_experiment_takes_no_other_parts(
    run_command: Callable[..., Any], main: Callable[[], None], group: str
) -> None:
    result = run_command(main, *(["inspect"] if main is data.main else []), group)
    assert result == (
        2,
        "",
        f"error: `{group.partition('=')[0]}=...` needs an experiment to go with: experiment=translation for sentence "
        "pairs, experiment=language_model for texts, or one of your own.\n",
    )
    assert list(Path.cwd().iterdir()) == []


def test_inspecting_a_run_that_goes_on_is_refused(trained: Path, run_command: Callable[..., Any]) -> None:
    result = run_command(data.main, "inspect", f"resume={trained}")
    message = "error: resume= goes on with a run, but inspect trains nothing; leave it out.\n"
    assert result == (2, "", message)


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
@pytest.mark.parametrize("saved", [True, False])
def test_other_processes_of_a_run_stay_silent(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, rank: int, saved: bool
) -> None:
    report = PreparationReport(corpora=(CorpusReport(name="a", read=3, kept=3, dropped={}, examples={}),), sides=())

    def train(*_: Any, progress: Callable[..., None], prepared: Callable[..., None], **__: Any) -> None:
        progress("reading a", 1, 3)
        prepared(report)
        raise RunInterrupted(signal.SIGINT, saved=saved)

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr("transformer.cli.progress.QUIET_SECONDS", -1.0)
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    result = run_command(command.main, "hydra.run.dir=here")
    if rank:
        # At an error of one process Lightning kills the main one. It may be saving the run; or, where nothing is saved,
        # it may wait for this one.
        assert result == (0 if saved else 130, "", "")
        assert not (Path.cwd() / "here" / "config.yaml").exists()
    else:
        begin, *rest = result.err.splitlines()
        assert begin == "training in here"
        assert rest == [
            "reading a: 1 of 3",
            "kept all 3 rows",
            "",
            *(f"stopped {'and saved' if saved else 'at once'}. Go on with:", "  transformer-train resume=here"),
        ]


def test_a_folder_that_cannot_be_made_is_one_sentence(run_command: Callable[..., Any]) -> None:
    result = run_command(command.main, "hydra.run.dir=/dev/null/run")
    assert result == (2, "", "error: the folder of the run cannot be made: Not a directory: /dev/null/run.\n")
