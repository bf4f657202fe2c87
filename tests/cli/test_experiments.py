"""Every YAML file composes to settings, and every experiment trains."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from transformer.cli import train
from transformer.cli.compose import compose_all, config_folder, parse
from transformer.cli.evaluate import EvaluateConfig
from transformer.config import Config
from transformer.training.config import TrainConfig

CONFIGS = config_folder()
GROUPS = {folder.name for folder in CONFIGS.iterdir() if folder.is_dir()}
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
GROUPS_OF_OPTIONS = ("data", "model", "tokenizer", "scheduler", "optimizer", "trainer", "logger", "decoding")
OPTIONS = sorted((group, path.stem) for group in GROUPS_OF_OPTIONS for path in (CONFIGS / group).glob("*.yaml"))
# Options that belong to a language model; all others suit a translation model.
OF_TEXTS = {"python_docs", "tinyshakespeare", "plain_text", "hub_text", "jsonl_text", "parquet_text", "text_mixture"}
OF_TEXTS |= {"lm_char", "lm_tiny", "lm_small", "llama_tiny"}
CORPORA = {
    "mixture": "{a: {name: phrases}, b: {name: tsv, train: b.tsv}}",
    "text_mixture": "{a: {name: python_docs}, b: {name: hub_text, dataset: b}}",
}


def settings(kind: type[Config], name: str, *overrides: str) -> tuple[Any, DictConfig]:
    """Settings composed from choices, with something for everything that a user must give."""
    [composed] = compose_all(CONFIGS, name, overrides, None)
    special = {"data.corpora": CORPORA.get(composed.get("data", {}).get("name"))}
    given = [f"{key}={special.get(key, key)}" for key in OmegaConf.missing_keys(composed)]
    if composed.get("data", {}).get("name") == "plain_text" and not composed.data.validation_fraction:
        given.append("data.validation=file")  # or the fraction
    [composed] = compose_all(CONFIGS, name, [*overrides, *given], None)
    return parse(kind, composed), composed


def test_every_group_is_covered() -> None:
    assert {*GROUPS_OF_OPTIONS, "experiment", "filters"} == GROUPS
    assert len(EXPERIMENTS) >= 6


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_names_its_command(experiment: str) -> None:
    settings(TrainConfig, "train", f"experiment={experiment}")
    text = (CONFIGS / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    command = "transformer-train" if experiment == "phrases_en_de" else f"transformer-train experiment={experiment}"
    assert f"#   {command}" in text


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=[f"{group}-{option}" for group, option in OPTIONS])
def test_every_option_composes_with_the_experiment_that_it_suits(group: str, option: str) -> None:
    experiment = "language_model" if option in OF_TEXTS else "translation"
    config, composed = settings(TrainConfig, "train", f"experiment={experiment}", f"{group}={option}")
    own = OmegaConf.load(CONFIGS / group / f"{option}.yaml")
    assert isinstance(own, DictConfig)
    if group == "logger":
        assert [logger.name for logger in config.loggers] == ([] if option == "none" else [option])
        return
    assert "name" not in own or getattr(config, group).name == own.name
    # What the option says is what the run gets: these two experiments set nothing in any group.
    for key in own:
        if not OmegaConf.is_missing(own, key) and (option, key) != ("plain_text", "validation"):
            assert composed[group][key] == own[key]


@pytest.mark.parametrize(
    ("option", "experiment", "data"),
    [("clean_pairs", "translation", "tsv_pairs"), ("clean_texts", "language_model", "jsonl_text")],
)
def test_filters_compose_with_data_of_their_kind(option: str, experiment: str, data: str) -> None:
    arguments = [f"experiment={experiment}", f"data={data}", f"filters={option}", "data.filters.max_words=77"]
    config, _ = settings(TrainConfig, "train", *arguments)
    own = OmegaConf.to_container(OmegaConf.load(CONFIGS / "filters" / f"{option}.yaml"))
    assert isinstance(own, dict)
    expected = {str(key): value for key, value in own.items()} | {"max_words": 77}
    assert len(expected) >= 8
    filters = config.data.filters.to_plain()
    assert {key: filters[key] for key in expected} == expected


def test_every_filter_is_tested() -> None:
    assert {path.stem for path in (CONFIGS / "filters").glob("*.yaml")} == {"clean_pairs", "clean_texts"}


@pytest.mark.parametrize("group", ["data", "decoding"])
def test_every_option_composes_for_an_evaluation(group: str) -> None:
    for path in (CONFIGS / group).glob("*.yaml"):
        config, _ = settings(EvaluateConfig, "evaluate", f"{group}={path.stem}", "bundle=here")
        assert getattr(config, group) is not None


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_trains_two_steps(run_command: Callable[..., Any], experiment: str, tmp_path: Path) -> None:
    small = ["trainer.max_steps=2", "trainer.precision=32-true", "scheduler.warmup_steps=1", "validation.num_shown=1"]
    small += ["model.d_model=16", "model.num_heads=2", "model.d_ff=32", "decoding.max_new_tokens=4"]
    match experiment:
        case "multi30k_en_de":
            for split, lines in (("train", 40), ("val", 4), ("test_2016_flickr", 4)):
                for language in ("en", "de"):
                    text = "".join(f"a line in {language}, number {number}\n" for number in range(lines))
                    (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode()))
            small += [f"data.folder={tmp_path}", "tokenizer.vocab_size=300"]
        case "phrases_en_de":
            small += ["data.num_train=100", "data.num_validation=4", "data.num_test=4", "tokenizer.vocab_size=300"]
        case "translation":
            (tmp_path / "pairs.en").write_text("".join(f"line {number}\n" for number in range(40)), encoding="utf-8")
            (tmp_path / "pairs.de").write_text("".join(f"Zeile {number}\n" for number in range(40)), encoding="utf-8")
            files = {f"data.{split}_{side}": f"pairs.{code}" for split in ("train", "validation")
                     for side, code in (("source", "en"), ("target", "de"))}  # fmt: skip
            small += [f"data.folder={tmp_path}", *(f"{key}={file}" for key, file in files.items())]
            small += ["tokenizer.vocab_size=300"]
        case "language_model":
            (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 50, encoding="utf-8")
            small += [f"data.folder={tmp_path}", "data.train=text.txt", "data.validation=text.txt"]
            small += ["tokenizer.vocab_size=300"]
        case "tinyshakespeare_char":
            (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 50, encoding="utf-8")
            small += [f"data.folder={tmp_path}", "data.train=text.txt"]
        case "python_docs":
            small += ["tokenizer.vocab_size=300"]
    if experiment in ("multi30k_en_de", "phrases_en_de", "translation"):
        small += ["model.num_encoder_layers=1", "model.num_decoder_layers=1"]
    else:
        small += ["model.num_layers=1"]
    result = run_command(train.main, f"experiment={experiment}", *small)
    assert result.status == 0, result.err
    [folder] = (Path.cwd() / "runs" / experiment).iterdir()
    assert (folder / "bundle" / "model.safetensors").is_file()
    assert (folder / "curve.png").is_file()
