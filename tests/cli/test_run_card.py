"""The card that a run writes into its bundle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

from transformer.bundle import load_bundle
from transformer.cli import evaluate, train
from transformer.cli.run_card import started_with

SMALL = (
    *("trainer=debug", "trainer.max_steps=2", "data.num_train=60", "data.num_validation=4", "data.num_test=6"),
    *("model.d_model=16", "model.num_heads=2", "model.d_ff=32", "tokenizer.vocab_size=300", "validation.num_shown=0"),
    *("batching.max_tokens_per_batch=600", "decoding=greedy", "decoding.max_new_tokens=12"),
)  # fmt: skip


def sections(card: str) -> dict[str, str]:
    """The text below each heading."""
    parts = [part.partition("\n") for part in f"\n{card}".split("\n#")[1:]]
    return {heading.strip("# "): text for heading, _, text in parts}


def cells(text: str) -> dict[str, list[str]]:
    """The rows of the first table of a text, by their first cell, as a Markdown parser reads them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append("".join(child.content for child in token.children or []))
        elif token.type == "table_close":
            break
    return {first: rest for first, *rest in rows}


def test_the_card_of_a_translation_run(run_command: Callable[..., Any]) -> None:
    result = run_command(train.main, *SMALL, "seed=7", "hydra.run.dir=a run")
    assert result.status == 0, result.err
    folder = Path("a run")
    parts = sections((folder / "bundle" / "README.md").read_text(encoding="utf-8"))
    bundle = load_bundle(folder / "bundle")
    size = sum(parameter.numel() for parameter in bundle.model.parameters())
    assert f"translates en to de. {size:,} parameters." in parts["Translation from en to de, trained on phrases"]

    evaluated = run_command(evaluate.main, f"bundle={folder / 'bundle'}", "accelerator=cpu", "report=again.json")
    table = cells(parts["Scores on the test split"])
    for score in map(json.loads, evaluated.out.splitlines()):
        assert table[score["name"]] == [f"{score['value']:.4f}", score["how"]]
    how = "6 sentences, one reference each. Search: greedy (max\\_new\\_tokens 12). Weights of step 2 of 2"
    assert how in parts["Scores on the test split"]
    assert "no test split" not in parts["Scores on the test split"]
    [system] = json.loads(Path("again.json").read_text(encoding="utf-8"))["systems"]
    for group in system["lengths"]["groups"]:
        words = {group["shortest"], group["longest"]}
        row = cells(parts["By source length"])[" to ".join(map(str, sorted(words)))]
        assert row[:2] == [str(group["num_sentences"]), f"{group['bleu']:.2f}"]

    made = cells(parts["How it was trained"])
    assert made["steps"] == ["2"]
    assert made["training data"][0].startswith("60 pairs, ")
    assert int(made["tokens seen"][0].split()[0].replace(",", "")) > 60
    assert made["wall-clock time"][0].endswith(" s, validations included")
    assert made["machine"][0].endswith(", 64-true")
    assert "![losses of training and validation against the step](curve.png)" in parts["How it was trained"]
    assert (folder / "bundle" / "curve.png").read_bytes() == (folder / "curve.png").read_bytes()

    again = parts["Make it again"]
    shown = " ".join(f"'{each}'" if " " in each else each for each in (*SMALL, "seed=7", "hydra.run.dir=a run"))
    assert f"\ntransformer-train {shown}\n" in again
    block = next(token for token in MarkdownIt().parse(again) if token.info == "yaml")
    assert OmegaConf.create(block.content) == OmegaConf.load(folder / "config.yaml")


def test_the_card_of_a_language_model(run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox. " * 60, encoding="utf-8")
    files = ["experiment=language_model", "tokenizer=char", f"data.folder={tmp_path}", "data.train=text.txt"]
    small = ["trainer=debug", "trainer.max_steps=2", "model.d_model=16", "model.num_heads=2", "model.d_ff=32"]
    more = ["data.validation_fraction=0.2", "model.max_length=16", "batching.max_tokens_per_batch=64"]
    result = run_command(train.main, *files, *small, *more, "validation.num_shown=0", "hydra.run.dir=lm")
    assert result.status == 0, result.err
    parts = sections(Path("lm/bundle/README.md").read_text(encoding="utf-8"))
    assert {"loss", "perplexity", "bits_per_byte", "bits_per_character"} < set(
        cells(parts["Scores on the validation split"])
    )
    assert "The data have no test split. These texts have also decided which" in parts["Scores on the validation split"]
    assert "warning: `data` has no test split: its validation split is scored" in result.err
    assert "By source length" not in parts
    assert cells(parts["How it was trained"])["training data"][0].startswith("1 texts, ")
    assert "transformer-generate FOLDER" in parts["Language model, trained on plain\\_text"]


def test_the_command_is_quoted_for_a_shell() -> None:
    assert started_with(["seed=1", "data.folder=a b"]) == "transformer-train seed=1 'data.folder=a b'"
    for resumed in ("resume=runs/a", "+resume=runs/a", "++resume=runs/a"):
        assert started_with([resumed, "seed=1"]) is None


def test_a_job_of_a_sweep_has_its_own_command(run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    monkeypatch.setattr(train, "_train", lambda config, folder: commands.append(started_with()))
    Path("own").mkdir()
    arguments = ["--config-dir", "own", "-cn", "train", "experiment=phrases_en_de", "model.qk_norm=True"]
    result = run_command(train.main, "-m", *arguments, "seed=3,4", "hydra.sweep.dir=sweep")
    assert result.status == 0, result.err
    assert commands == [f"transformer-train {' '.join(arguments)} seed={seed}" for seed in (3, 4)]
    run_command(train.main, *arguments, "seed=5")
    assert commands[2] == f"transformer-train {' '.join(arguments)} seed=5"
