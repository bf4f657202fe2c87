"""Settings of corpora, filters and tokenizers: what is refused, and that the YAML files hold nothing else."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.corpora.pair_config import BleuTokenize
from transformer.data.preparation.filter_config import DocumentFiltersConfig, PairFiltersConfig
from transformer.data.subwords.config import TokenizerConfig
from transformer.metrics import text

CONFIGS = Path(__file__).parents[2] / "configs"

TEXT_FILES = {"name": "parallel_text", "train_source": "a", "train_target": "b"} | {
    "validation_source": "c",
    "validation_target": "d",
}


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (TEXT_FILES | {"test_source": "e"}, "`test_target` must be given too, because `test_source` is."),
        (TEXT_FILES | {"test_target": "e"}, "`test_source` must be given too, because `test_target` is."),
        ({"name": "phrases", "target_language": "en"}, "must differ, but both are 'en'."),
        (
            {"name": "tsv", "train": "a", "validation": "b", "source_column": 1},
            "must differ, but both are 1.",
        ),
        ({"name": "tsv", "train": "a", "validation": "b", "source_column": "en"}, "are 'en' and 1."),
        ({"name": "jsonl", "train": "a", "validation": "b", "source_field": "target"}, "both are 'target'."),
        (
            {"name": "parquet", "train": "a", "validation": "b", "target_field": "source"},
            "both are 'source'.",
        ),
        ({"name": "hub", "dataset": "a", "target_field": "source"}, "both are 'source'."),
        (
            {"name": "plain_text", "train": "a", "validation": "b", "validation_fraction": 0.1},
            "exclude each other, but both are given.",
        ),
        (
            {"name": "hub_text", "dataset": "a", "held_out_rows": 10},
            "`validation_split` and `held_out_rows` exclude each other, but both are given.",
        ),
        (
            {"name": "mixture", "corpora": {"a": TEXT_FILES, "b": TEXT_FILES | {"bleu_tokenize": "none"}}},
            "`bleu_tokenize` must be the same for all `corpora`, whose sentences are scored together, but is 13a and",
        ),
    ],
)
def test_contradicting_settings_are_refused(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(DataConfig).validate_python(plain)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"name": "bpe", "vocab_size": 4}, "Input should be greater than 4"),
        ({"name": "unigram", "vocab_size": "8000"}, "Input should be a valid integer"),
        ({"name": "bpe", "normalization": "nfd"}, "Input should be 'none', 'nfc' or 'nfkc'"),
        ({"name": "char", "vocab_size": 100}, "Extra inputs are not permitted"),
        ({"name": "byte", "split_digits": True}, "Extra inputs are not permitted"),
        ({"name": "char", "pad_vocab_to_multiple_of": 0}, "Input should be greater than 0"),
    ],
)
def test_tokenizer_settings_without_sense_are_refused(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(TokenizerConfig).validate_python(plain)
    assert message in str(caught.value)


def test_the_ways_to_cut_words_are_those_of_the_metric() -> None:
    assert get_args(BleuTokenize) == get_args(text.BleuTokenize)


def test_a_mixture_cuts_words_as_its_corpora_do() -> None:
    corpora = {name: TEXT_FILES | {"bleu_tokenize": "zh"} for name in "ab"}
    assert parsed(DataConfig, {"name": "mixture", "corpora": corpora}).bleu_tokenize == "zh"


CORPORA = {
    "mixture": {"a": TEXT_FILES, "b": {"name": "phrases"}},
    "text_mixture": {"a": {"name": "python_docs"}, "b": {"name": "hub_text", "dataset": "c"}},
}


def fields_of(path: Path) -> dict[str, Any]:
    """What a YAML file says, with something for everything that a user must give."""
    plain = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(plain, dict)
    given = {"corpora": CORPORA.get(path.stem)}
    return {str(key): given.get(str(key), f"{key} given") if value == "???" else value for key, value in plain.items()}


def parsed(kind: Any, plain: dict[str, Any]) -> Any:
    return TypeAdapter(kind).validate_json(json.dumps(plain))


@pytest.mark.parametrize("path", sorted((CONFIGS / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_data_yaml_names_every_setting_and_no_other(path: Path) -> None:
    """But for filters, which are a group of their own, the tag, which is for mixtures, and corpora in corpora."""
    config, plain = parsed(DataConfig, fields_of(path)), fields_of(path)
    assert config.to_plain().keys() - {"filters", "tag"} == plain.keys()
    plain.pop("corpora", None)
    assert {key: config.to_plain()[key] for key in plain} == plain
    # What the file does not say is off.
    for corpus in config.corpora.values() if path.stem in CORPORA else [config]:
        assert corpus.filters == type(corpus.filters)()
        assert corpus.to_plain().get("tag") is None


@pytest.mark.parametrize("path", sorted((CONFIGS / "tokenizer").glob("*.yaml")), ids=lambda path: path.stem)
def test_tokenizer_yaml_names_every_setting_and_no_other(path: Path) -> None:
    assert parsed(TokenizerConfig, fields_of(path)).to_plain() == fields_of(path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [(path, {"pairs": PairFiltersConfig, "texts": DocumentFiltersConfig}[path.stem.split("_")[-1]])
     for path in sorted((CONFIGS / "filters").glob("*.yaml"))],
    ids=lambda value: value.stem if isinstance(value, Path) else value.__name__,
)  # fmt: skip
def test_filters_yaml_names_settings_that_there_are(path: Path, kind: type[Config]) -> None:
    config = kind.from_plain(fields_of(path))
    assert {key: config.to_plain()[key] for key in fields_of(path)} == fields_of(path)
    assert path.read_text(encoding="utf-8").startswith("# @package data.filters\n")


def test_settings_are_checked_without_loading_the_heavy_libraries() -> None:
    code = (
        "import sys, transformer.data.config, transformer.data.subwords.config, transformer.data.batches.config;"
        "print(sorted({'torch', 'lightning', 'datasets', 'tokenizers', 'babel'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert out.stdout.strip() == "[]"


def test_filters_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`min_characters` must be at most `max_characters` \(9\), but is 10\."):
        PairFiltersConfig(min_characters=10, max_characters=9)
    assert PairFiltersConfig(min_characters=9, max_characters=9).min_characters == 9
