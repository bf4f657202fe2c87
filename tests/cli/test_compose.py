"""From command lines to settings."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from transformer.cli.compose import (
    SettingsError,
    allow_new_keys,
    compose_all,
    config_folder,
    expand,
    parse,
)
from transformer.training.config import TrainConfig


def composed(*overrides: str, other: Path | None = None) -> TrainConfig:
    [job] = compose_all(config_folder(), "train", allow_new_keys(overrides, config_folder()), other)
    return parse(TrainConfig, job)


def test_the_folder_of_the_yaml_files_is_found() -> None:
    assert (config_folder() / "train.yaml").is_file()
    assert (config_folder() / "experiment" / "phrases_en_de.yaml").is_file()


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("model.qk_norm=true", "++model.qk_norm=true"),
        ("seed=3", "++seed=3"),
        ("model=lm_tiny", "model=lm_tiny"),
        ("experiment=python_docs", "experiment=python_docs"),
        ("hydra.run.dir=here", "hydra.run.dir=here"),
        ("hydra/job_logging=none", "hydra/job_logging=none"),
        ("+seed=3", "+seed=3"),
        ("++seed=3", "++seed=3"),
        ("~early_stopping", "~early_stopping"),
    ],
)
def test_settings_that_no_file_mentions_can_be_changed(given: str, changed: str) -> None:
    assert allow_new_keys([given], config_folder()) == [changed]


def test_a_setting_that_no_file_mentions_takes_effect() -> None:
    assert composed().model.qk_norm is False
    assert composed("model.qk_norm=true").model.qk_norm is True
    assert composed("early_stopping.patience=2").early_stopping.patience == 2


def test_a_setting_can_be_removed() -> None:
    config = composed("~tokenizer.vocab_size")
    assert config.tokenizer.vocab_size == 8000  # its own default, neither the group's nor the experiment's


def test_sweeps_are_the_product_of_their_values() -> None:
    assert expand(["a=1", "b=1,2", "c=x,y"]) == [
        ["a=1", "b=1", "c=x"],
        ["a=1", "b=1", "c=y"],
        ["a=1", "b=2", "c=x"],
        ["a=1", "b=2", "c=y"],
    ]
    assert expand(["a=[1,2]", "b='1,2'"]) == [["a=[1,2]", "b='1,2'"]]
    assert expand(["a=range(1,4)"]) == [["a=1"], ["a=2"], ["a=3"]]
    assert expand(["++a=1,2"]) == [["++a=1"], ["++a=2"]]


@pytest.mark.parametrize("override", ["a", "a=[1", "a={"])
def test_what_is_no_override_is_refused(override: str) -> None:
    with pytest.raises(SettingsError) as caught:
        expand([override])
    assert "\n" not in str(caught.value)


def test_a_value_that_needs_quotes_says_so() -> None:
    with pytest.raises(
        SettingsError, match=r"^`data.delimiter=;` cannot be read\. .* as in 'data.delimiter=\"\.\.\.\"'"
    ):
        expand(["seed=1", "++data.delimiter=;"])
    assert expand(['data.delimiter=";"']) == [['data.delimiter=";"']]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"name": "mixture", "corpora": {"mine": {"name": "tsv", "train": "a", "tagg": "b"}}},
            "`data.corpora.mine.tagg` is not a setting; did you mean `tag`?",
        ),
        (
            {"name": "tsv", "train": "a", "validation": "b", "source_column": -1},
            "`data.source_column` must be greater than or equal to 0, but is -1.",
        ),
    ],
)
def test_mistakes_inside_corpora_are_named_as_the_user_wrote_them(data: dict[str, object], sentence: str) -> None:
    plain = composed().to_plain() | {"data": data}
    with pytest.raises(SettingsError) as caught:
        parse(TrainConfig, OmegaConf.create(plain))
    assert str(caught.value).splitlines()[0] == sentence


def test_every_mistake_has_its_sentence() -> None:
    plain = OmegaConf.to_container(OmegaConf.create(composed().to_plain()))
    assert isinstance(plain, dict)
    plain["modle"] = plain["model"]
    del plain["scheduler"]["name"]
    plain["trainer"]["strategy"] = "dpp"
    plain["trainer"]["devices"] = "all"
    plain["optimizer"]["betas"] = [0.9, 1.0]
    with pytest.raises(SettingsError) as caught:
        parse(TrainConfig, OmegaConf.create(plain))
    assert set(str(caught.value).splitlines()) == {
        "`modle` is not a setting; did you mean `model`?",
        "`scheduler.name` must be given, but is missing: it says what kind of scheduler this is.",
        "`trainer.strategy` must be 'auto' or 'ddp', but is 'dpp'.",
        "`trainer.devices` must be a valid integer or 'auto', but is 'all'.",
        "`optimizer.betas.1` must be less than 1, but is 1.0.",
    }


def test_own_yaml_files_are_found_and_may_use_the_given_ones(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /model: mine\n\nseed: 7\n", encoding="utf-8"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(
        "name: encoder_decoder\nnum_encoder_layers: 1\nnum_decoder_layers: 2\nd_model: 8\nnum_heads: 2\nmax_length: 9",
        encoding="utf-8",
    )
    config = composed("experiment=mine", other=tmp_path)
    assert (config.seed, config.model.num_decoder_layers, config.model.max_length) == (7, 2, 9)
    with pytest.raises(SettingsError, match="`experiment` must be one of "):
        composed("experiment=mine")


@pytest.mark.parametrize(
    ("experiment", "choice"),
    [
        ("phrases_en_de", "model=transformer_small"),
        ("python_docs", "tokenizer=char"),
        ("mine", "data=python_docs"),
        ("phrases_en_de", "optimizer=muon"),
        ("multi30k_de_en", "model=transformer_base"),  # by the experiment that it begins with
        ("multi30k_en_fr", "optimizer=adamw"),
        ("circular", "data=python_docs"),
        ("team/a", "data=python_docs"),
        ("global", "data=python_docs"),
    ],
)
def test_an_experiment_with_settings_of_its_own_for_a_group_takes_no_other_option(
    tmp_path: Path, experiment: str, choice: str
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ndata:\n  num_train: 7\n", encoding="utf-8")
    (tmp_path / "experiment" / "team").mkdir()
    chains = [("circular", "[circle]"), ("circle", "[/experiment/circular, mine@_global_]"), ("team/a", "[b]")]
    for name, bases in (*chains, ("team/b", "[/experiment/mine]"), ("global", "[{/experiment@_global_: mine}]")):
        text = f"# @package _global_\ndefaults: {bases}\n"
        (tmp_path / "experiment" / f"{name}.yaml").write_text(text, encoding="utf-8")
    group = choice.partition("=")[0]
    with pytest.raises(SettingsError) as caught:
        composed(f"experiment={experiment}", choice, other=tmp_path)
    assert str(caught.value) == (
        f"`{choice}` and `experiment={experiment}` both make settings of the {group}. Change single ones "
        f"({group}.SETTING=...), or start from experiment=translation or experiment=language_model."
    )
    assert composed("experiment=mine", other=tmp_path).data.num_train == 7


def test_options_beside_an_experiment() -> None:
    default = composed()
    assert default.trainer.max_steps > 5
    assert default.scheduler.name != "cosine"
    multi30k = composed("experiment=multi30k_en_de", "trainer=gpu", "data.folder=here")
    assert (multi30k.trainer.accelerator, multi30k.trainer.devices) == ("gpu", 1)
    debug = composed("trainer=debug").trainer
    assert (debug.max_steps, debug.precision) == (5, "64-true")  # also over the experiment's number of steps
    assert composed("trainer=debug", "trainer.max_steps=2").trainer.max_steps == 2
    cosine = composed("scheduler=cosine").scheduler
    assert (cosine.name, cosine.warmup_steps) == ("cosine", default.scheduler.warmup_steps)


@pytest.mark.parametrize(
    ("file", "content", "arguments", "message"),
    [
        ("experiment/bad.yaml", "seed:\t- [1\n", ["experiment=bad"], "experiment/bad.yaml cannot be read as YAML: "),
        ("experiment/bad.yaml", "- 1\n- 2\n", ["experiment=bad"], "experiment/bad.yaml must hold settings"),
        ("experiment/bad.yaml", "defaults:\n", ["experiment=bad"], "efaults"),
        ("data/bad.yaml", "train: a: b\n", ["experiment=translation", "data=bad"], "mapping values are not allowed"),
        ("experiment/bad.yaml", "\xff", ["experiment=bad"], "experiment/bad.yaml cannot be read as YAML: "),
    ],
)
def test_a_mistake_in_a_yaml_file_is_one_sentence(
    tmp_path: Path, file: str, content: str, arguments: list[str], message: str
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_bytes(content.encode("latin-1"))
    with pytest.raises(SettingsError) as caught:
        composed(*arguments, other=tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_that_refers_to_nothing_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"^Interpolation key 'nope' not found"):
        composed("experiment=multi30k_en_de", "data.folder=${nope}")
