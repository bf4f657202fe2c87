"""Every YAML file composes to settings, and every experiment trains."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import datasets
import pytest
from omegaconf import DictConfig, OmegaConf

from transformer.cli import evaluate, train
from transformer.cli.compose import compose_all, config_folder, parse
from transformer.cli.evaluate import EvaluateConfig
from transformer.config import Config
from transformer.data.config import TextDataConfig
from transformer.training.config import TrainConfig
from transformer.training.history import read_history

CONFIGS = config_folder()
GROUPS = {folder.name for folder in CONFIGS.iterdir() if folder.is_dir()}
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
GROUPS_OF_OPTIONS = ("data", "model", "tokenizer", "scheduler", "optimizer", "trainer", "logger", "decoding")
OPTIONS = sorted((group, path.stem) for group in GROUPS_OF_OPTIONS for path in (CONFIGS / group).glob("*.yaml"))
# Kinds of data and of models that belong to a language model; all others suit a translation model.
OF_TEXTS = {kind.model_fields["name"].default for kind in get_args(get_args(TextDataConfig)[0])} | {"decoder_only"}
TOKENISED = {"multi30k_en_de_lctok", "iwslt14_de_en"}  # experiments with such texts
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
    assert len(EXPERIMENTS) >= 13


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_names_its_command(experiment: str) -> None:
    config, _ = settings(TrainConfig, "train", f"experiment={experiment}")
    if config.is_translation:
        assert config.data.bleu_tokenize == ("none" if experiment in TOKENISED else "13a")
    text = (CONFIGS / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    command = "transformer-train" if experiment == "phrases_en_de" else f"transformer-train experiment={experiment}"
    assert f"#   {command}" in text


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=[f"{group}-{option}" for group, option in OPTIONS])
def test_every_option_composes_with_the_experiment_that_it_suits(group: str, option: str) -> None:
    own = OmegaConf.load(CONFIGS / group / f"{option}.yaml")
    assert isinstance(own, DictConfig)
    experiment = "language_model" if own.get("name") in OF_TEXTS else "translation"
    config, composed = settings(TrainConfig, "train", f"experiment={experiment}", f"{group}={option}")
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


SPLITS = {"train": 40, "validation": 6, "test": 4}  # and the number of examples of each


def write_lines(path: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def pairs_of(split: str) -> dict[str, list[str]]:
    """Sentences that clean_pairs keeps."""
    numbers = range(SPLITS[split])
    return {
        "source": [f"sentence number {number} of {split}, to be translated" for number in numbers],
        "target": [f"Satz Nummer {number} von {split}, der übersetzt ist" for number in numbers],
    }


def small_data(data: DictConfig, folder: Path) -> list[str]:
    """Write a corpus of the kind and layout that an experiment names; where it is, and other settings of its size."""
    match data.name:
        case "phrases":
            return [f"data.num_{split}={count}" for split, count in SPLITS.items()]
        case "python_docs":
            return []
        case "parallel_text":
            given = [f"data.folder={folder}"]
            for split in SPLITS:
                for side, lines in pairs_of(split).items():
                    key = f"{split}_{side}"
                    if OmegaConf.is_missing(data, key):
                        given.append(f"data.{key}={key}.txt")
                    elif data[key] is None:
                        continue
                    write_lines(folder / (f"{key}.txt" if OmegaConf.is_missing(data, key) else data[key]), lines)
            return given
        case "plain_text":
            write_lines(folder / "text.txt", ["the quick brown fox jumps over the lazy dog"] * 50)
            files = ["data.train=text.txt"] + ([] if data.validation_fraction else ["data.validation=text.txt"])
            return [f"data.folder={folder}", *files]
        case "hub" | "hub_text":
            for split, wanted in hub_rows(data).items():
                (folder / "data").mkdir(exist_ok=True)
                datasets.Dataset.from_list(wanted).to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
            held_out = [] if data.held_out_rows is None else ["data.held_out_rows=3"]
            return [f"data.dataset={folder}", "data.subset=null", *held_out]
        case _:
            raise NotImplementedError(f"write data of the kind {data.name} here")


def hub_rows(data: DictConfig) -> dict[str, list[dict[str, Any]]]:
    """Rows of each split of a data set on the hub, with the texts in the fields that the experiment reads."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for split in SPLITS:
        if (name := data[f"{split}_split"]) is None:
            continue
        pairs = pairs_of(split)
        fields = {"text_field": pairs["source"]} if data.name == "hub_text" else {
            "source_field": pairs["source"], "target_field": pairs["target"],
        }  # fmt: skip
        rows[name] = [{} for _ in range(SPLITS[split])]
        for field, texts in fields.items():
            *path, last = data[field].split(".")
            for row, text in zip(rows[name], texts, strict=True):
                inner = row
                for part in path:
                    inner = inner.setdefault(part, {})
                inner[last] = text
    return rows


def small_run(composed: DictConfig) -> list[str]:
    """Changes of an experiment's sizes that make two of its steps a matter of a second; all else stays."""
    small = ["trainer.max_steps=2", "trainer.precision=32-true", "scheduler.warmup_steps=1", "validation.num_shown=1"]
    small += ["model.d_model=16", "model.num_heads=2", "model.d_ff=32", "batching.num_workers=0"]
    if composed.model.name == "encoder_decoder":
        small += ["model.num_encoder_layers=1", "model.num_decoder_layers=1"]
    else:
        rows = composed.batching.max_tokens_per_batch // composed.model.max_length
        small += ["model.num_layers=1", "model.max_length=32", f"batching.max_tokens_per_batch={32 * min(rows, 4)}"]
    if "vocab_size" in composed.tokenizer:
        small.append("tokenizer.vocab_size=300")
    if composed.decoding.name == "mbr":
        small += ["decoding.samples=2", "decoding.sampling.max_new_tokens=4"]
    else:
        small.append("decoding.max_new_tokens=4")
    if composed.get("ema"):
        small.append("ema.start_step=0")
    return small


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_trains_two_steps(run_command: Callable[..., Any], experiment: str, tmp_path: Path) -> None:
    """Also those that are made for a GPU, whose command says ``trainer=gpu``."""
    [composed] = compose_all(CONFIGS, "train", [f"experiment={experiment}"], None)
    small = [*small_data(composed.data, tmp_path), *small_run(composed)]
    result = run_command(train.main, f"experiment={experiment}", *small)
    assert result.status == 0, result.err
    [folder] = (Path.cwd() / "runs" / experiment).iterdir()
    assert (folder / "bundle" / "model.safetensors").is_file()
    assert (folder / "curve.png").is_file()
    steps = [entry["step"] for entry in read_history(folder / "metrics.jsonl") if "validation/loss" in entry]
    assert steps[-1] == 2


def test_texts_that_are_tokenised_already_are_scored_as_they_are(
    run_command: Callable[..., Any], tmp_path: Path
) -> None:
    """In training by the setting of the data, and by ``transformer-evaluate`` without being told."""
    arguments = ["experiment=multi30k_en_de_lctok"]
    [composed] = compose_all(CONFIGS, "train", arguments, None)
    result = run_command(train.main, *arguments, *small_data(composed.data, tmp_path), *small_run(composed))
    assert result.status == 0, result.err
    [folder] = (Path.cwd() / "runs" / "multi30k_en_de_lctok").iterdir()
    for told, tokenizer in (([], "none"), (["bleu_tokenize=13a"], "13a")):
        result = run_command(evaluate.main, f"bundle={folder / 'bundle'}", "accelerator=cpu", *told)
        assert result.status == 0, result.err
        [found] = [score for line in result.out.splitlines() if (score := json.loads(line))["name"] == "bleu"]
        assert f"tok:{tokenizer}|" in found["how"]
