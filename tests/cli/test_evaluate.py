"""``transformer-evaluate``: a bundle in, one JSON object a score out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.cli.compose import config_folder
from transformer.cli.evaluate import main

LINES = {"test": (["ab", "ba b", "bb"], ["b", "a", "ab"]), "validation": (["aa"], ["b b"])}


@pytest.fixture
def pairs(tmp_path: Path) -> list[str]:
    """Overrides that choose a corpus of parallel files."""
    chosen = ["data=text_pairs", f"data.folder={tmp_path}"]
    for split, (sources, targets) in {"train": LINES["test"], **LINES}.items():
        for side, lines in (("source", sources), ("target", targets)):
            (tmp_path / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
            chosen.append(f"data.{split}_{side}={split}.{side}")
    return chosen


def scores(out: str) -> dict[str, dict[str, Any]]:
    return {line["name"]: line for line in map(json.loads, out.splitlines())}


def test_a_translation_bundle(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path, pairs: list[str]
) -> None:
    save_bundle(tmp_path / "bundle", tiny_bundle("encoder_decoder"), "card")
    arguments = [f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", *pairs]
    result = run_command(main, *arguments, "output=out.txt")
    assert result.status == 0, result.err
    found = scores(result.out)
    assert set(found) == {"bleu", "chrf", "ter", "exact_match", "loss", "perplexity"}
    assert {score["split"] for score in found.values()} == {"test"}
    assert all(set(score) == {"split", "name", "value", "how"} for score in found.values())
    assert found["bleu"]["how"].startswith("nrefs:1|case:mixed")
    assert "scores on the test split of parallel_text: 3 sentences, one reference each" in result.err
    assert "bundle, greedy\n" in result.err
    for heading in ("by source length", "worst sentences (by chrF)", "best sentences (by chrF)"):
        assert f"\n{heading}\n" in result.err
    outputs = Path("out.txt").read_text(encoding="utf-8").split("\n")
    assert len(outputs) == 4  # three lines, each with its end
    hits = [output.strip() == target for output, target in zip(outputs, LINES["test"][1], strict=False)]
    assert found["exact_match"]["value"] == pytest.approx(100 * sum(hits) / 3)
    assert list(Path.cwd().iterdir()) == [Path.cwd() / "out.txt"]

    other = scores(run_command(main, *arguments, "split=validation").out)
    assert {score["split"] for score in other.values()} == {"validation"}
    assert other["loss"]["value"] != found["loss"]["value"]


def test_the_search_and_the_size_of_batches_are_settings(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path, pairs: list[str]
) -> None:
    save_bundle(tmp_path / "bundle", tiny_bundle("encoder_decoder"), "card")
    arguments = [f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", *pairs]
    for number, more in enumerate(([], ["max_tokens_per_batch=1"], ["decoding=greedy", "decoding.max_new_tokens=1"])):
        assert run_command(main, *arguments, *more, f"output={number}.txt").status == 0
    lines = [Path(f"{number}.txt").read_text(encoding="utf-8") for number in range(3)]
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]


def test_a_language_model(tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path) -> None:
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "card")
    (tmp_path / "text.txt").write_text("ab ba bb aa abba\n" * 5, encoding="utf-8")
    files = [f"data.folder={tmp_path}", "data.train=text.txt", "data.validation=text.txt"]
    result = run_command(main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", "data=plain_text", *files)
    assert result.status == 0, result.err
    found = scores(result.out)
    assert set(found) == {"loss", "perplexity", "bits_per_byte", "bits_per_character"}
    assert {score["split"] for score in found.values()} == {"validation"}  # there is no test file
    [warning, *_] = result.err.splitlines()
    assert warning.startswith("warning: `data` has no test split: its validation split is scored")
    assert "scores on the validation split of plain_text: 1 text, 85 characters" in result.err
    assert f"{found['loss']['value']:.4f}" in result.err
    refused = run_command(main, f"bundle={tmp_path / 'bundle'}", "data=plain_text", *files, "split=test")
    assert (refused.status, refused.err) == (2, "error: `data` has no test split to score.\n")
    strided = run_command(
        main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", "data=plain_text", *files, "stride=2"
    )
    assert scores(strided.out)["loss"]["how"] == "nats per token, windows of 24 tokens, stride 2"
    assert scores(strided.out)["loss"]["value"] != found["loss"]["value"]


def test_files_of_ones_own(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path, pairs: list[str]
) -> None:
    """They need no word of training data, and score as the same texts of a corpus."""
    save_bundle(tmp_path / "bundle", tiny_bundle("encoder_decoder"), "card")
    bundle = [f"bundle={tmp_path / 'bundle'}", "accelerator=cpu"]
    names = [f"source={tmp_path / 'test.source'}", f"reference={tmp_path / 'test.target'}"]
    result = run_command(main, *bundle, *names, "report=own.json", "output=out.txt")
    assert result.status == 0, result.err
    corpus = scores(run_command(main, *bundle, *pairs).out)
    assert scores(result.out) == {name: {**score, "split": None} for name, score in corpus.items()}
    report = json.loads(Path("own.json").read_text(encoding="utf-8"))
    assert report["data"] == {"source": str(tmp_path / "test.source"), "reference": [str(tmp_path / "test.target")]}
    assert (report["num_sentences"], report["num_references"]) == (3, 1)
    Path("more.txt").write_text(Path("out.txt").read_text(encoding="utf-8"), encoding="utf-8")
    several = f"reference=[{tmp_path / 'test.target'},more.txt]"
    found = scores(run_command(main, *bundle, names[0], several).out)
    assert found["exact_match"]["value"] == 100
    assert found["bleu"]["how"].startswith("nrefs:2|")


def test_a_text_of_ones_own(tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path) -> None:
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "card")
    Path("text.txt").write_text("ab ba bb aa abba\n" * 5, encoding="utf-8")
    result = run_command(main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", "text=text.txt", "report=own.md")
    assert result.status == 0, result.err
    files = ["data=plain_text", "data.train=text.txt", "data.validation=text.txt", "split=validation"]
    corpus = scores(run_command(main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", *files).out)
    assert scores(result.out) == {name: {**score, "split": None} for name, score in corpus.items()}
    assert "# Scores on files of your own\n" in Path("own.md").read_text(encoding="utf-8")
    assert "scores on text.txt: 1 text, 85 characters" in result.err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["source=a"], "`source` needs `reference` beside it, but there is none."),
        (["reference=a"], "`reference` needs `source` beside it, but there is none."),
        (["tag=x"], "`tag` needs `source` beside it, but there is none."),
        (["source=a", "reference=b", "text=c"], "`source` and `reference` are for translation models, `text` is for"),
        (["text=a", "split=validation"], "`split` has no effect where files of your own are scored; leave it out."),
        (["text=a", "data=python_docs"], "`data` has no effect where files of your own are scored; leave it out."),
        (["text=a", "output=a"], "`output` and `report` must not be written over what is read, but a is both."),
        (["source=a", "reference=[b,c.md]", "report=c.md"], "must not be written over what is read, but c.md is both."),
        (["bundle=3"], "`bundle` must be a valid array, but is 3."),
        (["reference=[3]", "source=a"], "`reference.0` must be a valid string, but is 3."),
        (["text=[]"], "`text` must have at least 1 item, but has 0."),
        (["num_resamples=99"], "`num_resamples` must be greater than or equal to 100, but is 99."),
    ],
)
def test_what_does_not_go_together(run_command: Callable[..., Any], settings: list[str], message: str) -> None:
    result = run_command(main, "bundle=x", *settings)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_the_help_lists_the_groups_that_have_an_effect(run_command: Callable[..., Any]) -> None:
    shown = run_command(main, "--help").out
    options = sorted(path.stem for path in (config_folder() / "decoding").glob("*.yaml"))
    assert f"decoding: {', '.join(options)}\n" in shown
    for group in ("optimizer:", "scheduler:", "trainer:", "adamw"):
        assert group not in shown
    assert "source=FILE reference=FILE" in shown


def test_numbers_that_json_does_not_have_are_null(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path
) -> None:
    """The perplexity of a loss of 2,000 nats overflows."""
    bundle = tiny_bundle("decoder_only")
    with torch.no_grad():
        bundle.model.output.weight *= 1e5
    save_bundle(tmp_path / "bundle", bundle, "card")
    Path("text.txt").write_text("ab ba bb aa abba\n", encoding="utf-8")
    result = run_command(main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", "text=text.txt", "report=own.json")
    assert result.status == 0, result.err
    assert scores(result.out)["loss"]["value"] > 1000
    for text in (result.out, Path("own.json").read_text(encoding="utf-8")):
        assert "Infinity" not in text
    assert scores(result.out)["perplexity"]["value"] is None


def test_a_corpus_of_the_wrong_kind(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path, pairs: list[str]
) -> None:
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "card")
    result = run_command(main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", *pairs)
    assert result.status == 2
    assert result.err == "error: this bundle is a language model and needs texts, but `data.name` is parallel_text.\n"
