"""``transformer-evaluate``: a bundle in, one JSON object a score out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer.bundle import save_bundle
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
    assert result.err == ""
    strided = run_command(
        main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", "data=plain_text", *files, "stride=2"
    )
    assert scores(strided.out)["loss"]["how"] == "nats per token, windows of 24 tokens, stride 2"
    assert scores(strided.out)["loss"]["value"] != found["loss"]["value"]


def test_a_corpus_of_the_wrong_kind(
    tiny_bundle: Callable[..., Any], run_command: Callable[..., Any], tmp_path: Path, pairs: list[str]
) -> None:
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "card")
    result = run_command(main, f"bundle={tmp_path / 'bundle'}", "accelerator=cpu", *pairs)
    assert result.status == 2
    assert result.err == "error: this bundle is a language model and needs texts, but `data.name` is parallel_text.\n"
