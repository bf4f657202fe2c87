"""What a validation reports besides the loss: scores, samples, in both tasks."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from rich.console import Console

from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.translation_data import read_pairs
from transformer.decoding.config import GreedyConfig
from transformer.inference.translator import Translator
from transformer.metrics.text import bleu, chrf, exact_match
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.run import train
from transformer.training.task import Sample
from transformer.training.translation import TranslationTask, first_of_each

Settings = Callable[..., dict[str, Any]]


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[Sample]:
    """Collects the samples of every validation of a translation run."""
    collected: list[Sample] = []
    original = TranslationTask.on_validation_epoch_end

    def collecting(self: TranslationTask) -> None:
        original(self)
        if not self.trainer.sanity_checking:
            collected.extend(self.samples)

    monkeypatch.setattr(TranslationTask, "on_validation_epoch_end", collecting)
    return collected


@pytest.mark.parametrize("budget", [160, 2000])
def test_scores_are_those_of_the_first_sentences_whatever_the_batches(
    run_settings: Settings, tmp_path: Path, samples: list[Sample], budget: int
) -> None:
    changes = {
        "trainer.max_steps": 1,
        "validation.num_generated": 3,
        "validation.num_shown": 9,
        "batching.max_tokens_per_batch": budget,
    }
    config = TrainConfig.from_plain(run_settings("translation", changes))
    train(config, tmp_path, Console(quiet=True))
    validation = read_pairs(config.data, "validation")
    assert validation is not None
    assert [(sample.source, sample.reference) for sample in samples] == validation.rows[:3]
    [entry] = [entry for entry in read_history(tmp_path / "metrics.jsonl") if "validation/loss" in entry]
    outputs, references = [sample.output for sample in samples], [target for _, target in validation.rows[:3]]
    for score in (bleu, chrf, exact_match):
        expected = score(outputs, references)
        assert entry[f"validation/{expected.name}"] == pytest.approx(expected.value, abs=1e-4)


@pytest.mark.parametrize("budget", [160, 2000])
def test_every_corpus_of_a_mixture_is_scored_and_shown(
    run_settings: Settings, tmp_path: Path, samples: list[Sample], budget: int
) -> None:
    plain = run_settings("translation", {"trainer.max_steps": 1, "validation.num_generated": 5})
    plain["validation"]["num_shown"] = 9
    plain["batching"]["max_tokens_per_batch"] = budget
    for name, num_pairs in (("big", 6), ("small", 1), ("other", 6)):
        lines = "".join(f"{name} {number}\t{number} {name}\n" for number in range(num_pairs))
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    files = {name: str(tmp_path / f"{name}.tsv") for name in ("big", "small", "other")}
    corpora = {name: {"name": "tsv", "train": file, "validation": file} for name, file in files.items()}
    plain["data"] = {"name": "mixture", "corpora": corpora}
    train(TrainConfig.from_plain(plain), tmp_path / "run", Console(quiet=True))
    assert [sample.source for sample in samples] == ["big 0", "small 0", "other 0", "big 1", "other 1"]
    assert [sample.reference for sample in samples] == ["0 big", "0 small", "0 other", "1 big", "1 other"]


def test_DATA_03_a_blank_source_is_answered_as_the_finished_model_does(
    run_settings: Settings, tmp_path: Path, samples: list[Sample]
) -> None:
    (tmp_path / "source").write_text("\na b\n \u00a0\nc\n", encoding="utf-8")
    (tmp_path / "target").write_text("x\nb a\ny\nc\n", encoding="utf-8")
    plain = run_settings("translation", {"trainer.max_steps": 1, "validation.num_generated": 4})
    plain["validation"]["num_shown"] = 4
    sides = {f"{split}_{side}": side for split in ("train", "validation") for side in ("source", "target")}
    plain["data"] = {"name": "parallel_text", "folder": str(tmp_path), **sides}
    result = train(TrainConfig.from_plain(plain), tmp_path / "run", Console(quiet=True))
    outputs = [sample.output for sample in samples]
    assert (outputs[0], outputs[2]) == ("", "")
    assert "" not in (outputs[1], outputs[3])
    greedy = GreedyConfig(name="greedy")
    assert Translator(result.bundle).translate(["", "a b", " \u00a0", "c"], greedy) == outputs


@pytest.mark.parametrize(
    ("sizes", "number", "expected"),
    [
        ([5], 3, [0, 1, 2]),
        ([2, 3], 9, [0, 2, 1, 3, 4]),
        ([2, 3], 0, []),
        ([0, 2], 2, [0, 1]),
    ],
)
def test_first_of_each_corpus(sizes: list[int], number: int, expected: list[int]) -> None:
    assert list(first_of_each(sizes, number)) == expected


def test_bleu_cuts_words_as_the_data_says(
    run_settings: Settings, tmp_path: Path, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = ["on the 5th of May ,", "ten (10) people .", "it's 7:30 o'clock!"]
    monkeypatch.setattr(Tokenizer, "decode_batch", lambda self, ids: outputs[: len(ids)])
    values = {}
    for tokenize in ("none", "char"):
        changes = {
            "trainer.max_steps": 1,
            "validation.num_generated": 3,
            "validation.num_shown": 3,
            "data.bleu_tokenize": tokenize,
        }
        train(TrainConfig.from_plain(run_settings("translation", changes)), tmp_path / tokenize, Console(quiet=True))
        history = read_history(tmp_path / tokenize / "metrics.jsonl")
        [values[tokenize]] = [entry["validation/bleu"] for entry in history if "validation/bleu" in entry]
    assert len(samples) == 6
    for (tokenize, value), shown in zip(values.items(), (samples[:3], samples[3:]), strict=True):
        references = [sample.reference or "" for sample in shown]
        expected = sacrebleu.corpus_bleu(
            [sample.output for sample in shown], [references], tokenize=tokenize, force=True
        ).score
        assert value == pytest.approx(expected, abs=1e-4)
    assert abs(values["none"] - values["char"]) > 0.1


def test_without_translations_there_are_no_scores(
    run_settings: Settings, tmp_path: Path, samples: list[Sample]
) -> None:
    changes = {"trainer.max_steps": 1, "validation.num_generated": 0}
    train(TrainConfig.from_plain(run_settings("translation", changes)), tmp_path, Console(quiet=True))
    [entry] = [entry for entry in read_history(tmp_path / "metrics.jsonl") if "validation/loss" in entry]
    assert set(entry) == {"step", "validation/loss", "validation/perplexity"}
    assert samples == []


@pytest.mark.parametrize("kind", ["translation", "text"])
@pytest.mark.parametrize("num_shown", [0, 2])
def test_what_the_console_shows(run_settings: Settings, tmp_path: Path, kind: str, num_shown: int) -> None:
    changes = {"validation.num_shown": num_shown, "trainer.max_steps": 3, "validation.every_n_steps": 2}
    out = io.StringIO()
    train(TrainConfig.from_plain(run_settings(kind, changes)), tmp_path, Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    validations = [line for line in lines if line.startswith("validation at step ")]
    assert [line.partition(":")[0] for line in validations] == ["validation at step 2", "validation at step 3"]
    assert ("bleu" in validations[0]) == (kind == "translation")
    assert ("bits_per_byte" in validations[0]) == (kind == "text")
    heading = "source" if kind == "translation" else "prompt"
    assert sum(line.split()[:1] == [heading] for line in lines) == (2 if num_shown else 0)
    if kind == "text" and num_shown:
        assert "the quic " in out.getvalue()  # half of the longest input
