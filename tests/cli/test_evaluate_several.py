"""``transformer-evaluate`` with several bundles, a baseline and a report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from transformer.bundle import Bundle, save_bundle
from transformer.cli.evaluate import main
from transformer.metrics.significance import paired_bootstrap
from transformer.metrics.text import all_scores

SOURCES = ["ab cd", "ba b a", "bb", "a b c d e", "e"]
TARGETS = ["b a", "a", "ab ab", "e d c b a", "e f"]


@pytest.fixture
def corpus(tmp_path: Path) -> list[str]:
    """Overrides that choose a corpus of parallel files, and the CPU."""
    chosen = ["accelerator=cpu", "data=text_pairs", f"data.folder={tmp_path}"]
    for split in ("train", "test"):
        for side, lines in (("source", SOURCES), ("target", TARGETS)):
            (tmp_path / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
            chosen.append(f"data.{split}_{side}={split}.{side}")
    return [*chosen, "data.validation_source=train.source", "data.validation_target=train.target"]


@pytest.fixture
def folders(tiny_bundle: Callable[..., Bundle], tmp_path: Path) -> list[str]:
    """Three bundles of the same settings, and one of others."""
    for number in range(4):
        settings = {"d_ff": 16} if number == 3 else {}
        save_bundle(tmp_path / f"b{number}", tiny_bundle("encoder_decoder", seed=number, **settings), "card")
    return [str(tmp_path / f"b{number}") for number in range(4)]


def lines_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_mean_and_deviation_over_seeds(run_command: Callable[..., Any], corpus: list[str], folders: list[str]) -> None:
    result = run_command(main, f"bundle=[{','.join(folders[:3])}]", *corpus, "output=out.txt", "num_sentences=0")
    assert result.status == 0, result.err
    lines = lines_of(result.out)
    assert [line["bundle"] for line in lines[:18:6]] == folders[:3]
    for number, place in enumerate(range(0, 18, 6), start=1):
        outputs = Path(f"out.{number}.txt").read_text(encoding="utf-8").splitlines()
        expected = [score.value for score in all_scores(outputs, TARGETS)]
        assert [line["value"] for line in lines[place : place + 4]] == pytest.approx(expected)
    for name in ("chrf", "loss"):
        values = [line["value"] for line in lines[:18] if line["name"] == name]
        [spread] = [line for line in lines[18:] if line["name"] == name]
        mean = sum(values) / 3
        assert spread["mean"] == pytest.approx(mean)
        assert spread["deviation"] == pytest.approx((sum((value - mean) ** 2 for value in values) / 2) ** 0.5)
        assert spread["n"] == 3
    assert "mean and standard deviation (n - 1) of 3 bundles" in result.err
    assert "worst sentences" not in result.err


def test_models_of_other_settings_have_no_mean(
    run_command: Callable[..., Any], corpus: list[str], folders: list[str]
) -> None:
    result = run_command(main, f"bundle=[{folders[0]},{folders[3]}]", *corpus)
    assert len(lines_of(result.out)) == 12
    assert f"no mean over the bundles: {folders[0]} and {folders[3]} differ in model.d_ff." in result.err


@pytest.mark.parametrize("from_file", [False, True])
def test_a_baseline(run_command: Callable[..., Any], corpus: list[str], folders: list[str], from_file: bool) -> None:
    run_command(main, f"bundle={folders[3]}", *corpus, "output=base.txt")
    baseline = "base.txt" if from_file else folders[3]
    arguments = [f"bundle={folders[0]}", f"baseline={baseline}", *corpus, "num_resamples=100"]
    result = run_command(main, *arguments, "output=out.txt", "report=all.json", "length_borders=[1,3]")
    assert result.status == 0, result.err
    lines = lines_of(result.out)
    outputs, others = (Path(name).read_text(encoding="utf-8").splitlines() for name in ("out.txt", "base.txt"))
    paired = paired_bootstrap(others, outputs, TARGETS, num_resamples=100)
    compared = [line for line in lines if "p_value" in line]
    assert [line["name"] for line in compared] == ["bleu", "chrf", "ter"]
    for line, expected in zip(compared, paired, strict=True):
        assert (line["bundle"], line["baseline"]) == (folders[0], baseline)
        assert (line["p_value"], line["difference"], line["how"]) == (
            *(expected.p_value, expected.difference, expected.signature),
        )
        mean, margin = expected.system.mean, expected.system.margin
        assert line["interval"] == pytest.approx([mean - margin, mean + margin])
    names = [line["name"] for line in lines if line["bundle"] == baseline]
    assert names == ["bleu", "chrf", "ter", "exact_match", *([] if from_file else ["loss", "perplexity"])]
    report = json.loads(Path("all.json").read_text(encoding="utf-8"))
    assert [system["bundle"] for system in report["systems"]] == [baseline, folders[0]]
    groups = report["systems"][1]["lengths"]["groups"]
    assert [(group["shortest"], group["longest"], group["num_sentences"]) for group in groups] == [
        *((1, 1, 2), (2, 3, 2), (5, 5, 1)),
    ]
    assert report["systems"][1]["paired"] == compared
    assert report["command"].startswith("transformer-evaluate bundle=")
    assert (report["split"], report["num_sentences"], report["num_references"]) == ("test", 5, 1)
    assert report["data"]["name"] == "parallel_text"
    assert report["versions"]["sacrebleu"] == sacrebleu.__version__
    assert {system["bundle"]: system["decoding"] and system["decoding"]["name"] for system in report["systems"]} == {
        baseline: None if from_file else "greedy", folders[0]: "greedy"
    }  # fmt: skip


def test_a_report_in_markdown(run_command: Callable[..., Any], corpus: list[str], folders: list[str]) -> None:
    search = ["decoding=beam", "decoding.size=3"]
    result = run_command(main, f"bundle={folders[0]}", *corpus, *search, "report=all.md", "num_sentences=1")
    text = Path("all.md").read_text(encoding="utf-8")
    assert text.startswith("# Scores on the test split\n\n```\ntransformer-evaluate bundle=")
    assert "Scored on the test split of parallel\\_text: 5 sentences, one reference each." in text
    assert "Search: beam (size 3)." in text
    assert f"sacrebleu {sacrebleu.__version__}" in text
    assert "train_source: train.source" in text
    for score in lines_of(result.out):
        assert f"{score['value']:.4f}" in text
    assert text.count("  - reference: ") == 2
    assert "### By source length" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["report=all.txt"], "`report` must end in .md or .json, but is all.txt."),
        (["report=nowhere/all.md"], "nowhere/all.md must be in a folder that exists, but "),
        (["output=."], ". must be a file to write, but is a folder."),
        (["length_borders=[3,3]"], "`length_borders` must grow from one to the next, but are [3, 3]."),
        (["baseline={b0}"], "every bundle must be named once, also as the `baseline`, but "),
        (["bundle=[]"], "`bundle` must have at least 1 item, but has 0."),
        (
            ["baseline={short}"],
            "must have one translation a line for each of the 5 sentences of the test split, but has 1 lines.",
        ),
        (["stride=2"], "`stride` is for language models and has no effect on a translation model; leave it out."),
        (["baseline={lm}"], "must be of one kind, but "),
        (["baseline=typo.txt"], "`baseline` must be a bundle's folder or a file of translations, but typo.txt does "),
        (["output=all.md", "report=all.md"], "`output` and `report` must be different files, but both are all.md."),
        (["baseline={short}", "output={short}"], "`output` and `report` must not be written over what is read, but "),
    ],
)
def test_what_is_refused_before_anything_is_scored(
    run_command: Callable[..., Any], tiny_bundle: Callable[..., Bundle], tmp_path: Path, corpus: list[str],
    folders: list[str], changes: list[str], message: str,
) -> None:  # fmt: skip
    (tmp_path / "short.txt").write_text("one line\n")
    save_bundle(tmp_path / "lm", tiny_bundle("decoder_only"), "card")
    given = [change.format(b0=folders[0], short=tmp_path / "short.txt", lm=tmp_path / "lm") for change in changes]
    result = run_command(main, f"bundle={folders[0]}", *corpus, *given)
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert message in result.err


@pytest.mark.parametrize(
    "setting", ["baseline=x", "decoding=greedy", "bleu_tokenize=intl", "output=x", "length_borders=[3]"]
)
def test_settings_without_effect_on_a_language_model(
    run_command: Callable[..., Any], tiny_bundle: Callable[..., Bundle], tmp_path: Path, setting: str
) -> None:
    save_bundle(tmp_path / "lm", tiny_bundle("decoder_only"), "card")
    (tmp_path / "text.txt").write_text("ab ba bb aa abba\n" * 5, encoding="utf-8")
    Path("x").write_text("line\n")
    text = f"text={tmp_path / 'text.txt'}"
    result = run_command(main, f"bundle={tmp_path / 'lm'}", "accelerator=cpu", text, setting)
    name = setting.partition("=")[0]
    assert result.err == f"error: `{name}` is about translations and has no effect on a language model; leave it out.\n"


def test_several_language_models(
    run_command: Callable[..., Any], tiny_bundle: Callable[..., Bundle], tmp_path: Path
) -> None:
    for seed in range(2):
        save_bundle(tmp_path / f"lm{seed}", tiny_bundle("decoder_only", seed=seed), "card")
    (tmp_path / "text.txt").write_text("ab ba bb aa abba\n" * 5, encoding="utf-8")
    files = ["data=plain_text", f"data.folder={tmp_path}", "data.train=text.txt", "data.validation=text.txt"]
    both = f"bundle=[{tmp_path / 'lm0'},{tmp_path / 'lm1'}]"
    result = run_command(main, both, "accelerator=cpu", *files, "report=all.md")
    lines = lines_of(result.out)
    values = [line["value"] for line in lines[:8] if line["name"] == "bits_per_character"]
    assert lines[11]["name"] == "bits_per_character"
    assert lines[11]["mean"] == pytest.approx(sum(values) / 2)
    assert "By source length" not in Path("all.md").read_text(encoding="utf-8")


def test_a_stride_that_does_not_fit_one_of_them_is_refused_before_anything_is_scored(
    run_command: Callable[..., Any], tiny_bundle: Callable[..., Bundle], tmp_path: Path
) -> None:
    for name, length in (("long", 16), ("short", 8)):
        save_bundle(tmp_path / name, tiny_bundle("decoder_only", max_length=length), "card")
    (tmp_path / "text.txt").write_text("ab ba bb aa abba\n" * 5, encoding="utf-8")
    files = ["data=plain_text", f"data.folder={tmp_path}", "data.train=text.txt", "data.validation=text.txt"]
    bundles = f"bundle=[{tmp_path / 'long'},{tmp_path / 'short'}]"
    result = run_command(main, bundles, "accelerator=cpu", *files, "stride=12")
    assert (result.status, result.out) == (2, "")
    assert f"`stride` must be at most the `max_length` (8) of {tmp_path / 'short'}, but is 12." in result.err
