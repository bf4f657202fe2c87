"""Settings of a run: what contradicts itself is refused, naming the settings."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from transformer.training.config import TrainConfig

Settings = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "translation",
            {"trainer.max_steps": None},
            "one of `trainer.max_steps` and `trainer.max_epochs` must be given.",
        ),
        ("translation", {"trainer.max_steps": 0}, "greater than or equal to 1"),
        ("translation", {"trainer.max_time": "10 minutes"}, "String should match pattern"),
        ("translation", {"trainer.max_time": "01:00:00"}, "String should match pattern"),
        ("translation", {"trainer.devices": 0}, "greater than or equal to 1"),
        ("translation", {"trainer.devices": -1}, "greater than or equal to 1"),
        ("translation", {"trainer.strategy": "fsdp"}, "Input should be 'auto' or 'ddp'"),
        ("translation", {"trainer.gradient_clip_val": 0.0}, "greater than 0"),
        ("translation", {"tokenizer.joint": False}, "`model.tie_embeddings: all` needs `tokenizer.joint: true`"),
        ("translation", {"label_smoothing": 1.0}, "less than 1"),
        ("translation", {"divergence.loss_factor": 1.0}, "greater than 1"),
        ("translation", {"ema.decay": 1.0}, "less than 1"),
        ("text", {"ema.start_step": 4}, "put the first update at step 4, which must be below `trainer.max_steps` (4)"),
        ("text", {"ema.every_n_steps": 5}, "put the first update at step 5, which must be below"),
        ("translation", {"r_drop": -1.0}, "greater than or equal to 0"),
        (
            "translation",
            {"r_drop": 5.0},
            "`r_drop` has no effect on a model without dropout, whose two passes are the same; give `model.dropout`",
        ),
        # Both passes skip the same layers.
        ("text", {"r_drop": 5.0, "model.layer_dropout": 0.1}, "`r_drop` has no effect on a model without dropout"),
        ("text", {"r_drop": 5.0, "model.dropout": 0.0}, "`r_drop` has no effect on a model without dropout"),
        ("translation", {"data": {"name": "python_docs"}}, "gives single texts, which need `model.name: decoder_only`"),
        ("text", {"data": {"name": "phrases"}}, "gives sentence pairs, which need `model.name: encoder_decoder`"),
        (
            "text",
            {"batching.over_long": "skip"},
            "`batching.over_long` has no effect on a language model; leave it out.",
        ),
        ("text", {"decoding": {"name": "mbr"}}, "`decoding: mbr` is for translation; a language model's"),
        ("text", {"decoding.max_length_factor": 2.0}, "but a language model has no source; use `max_new_tokens`"),
        ("text", {"decoding.min_length_factor": 0.5}, "but a language model has no source; use `max_new_tokens`"),
        (
            "text",
            {"decoding": {"name": "beam", "coverage_penalty": 0.2}},
            "`coverage_penalty` is about source tokens, but a language model has no source",
        ),
        (
            "translation",
            {"decoding": {"name": "mbr", "sampling": {"name": "sample", "temperature": 0.0}}},
            "`sampling.temperature` must be above 0, or all samples are the same, but is 0.",
        ),
        ("text", {"data.validation_fraction": None}, "`data` must have a validation split, but none is given: "),
        (
            "translation",
            {"data": {"name": "tsv", "train": "a"}},
            "`data` must have a validation split, but none is given: its validation files or, for running text, ",
        ),
        (
            "translation",
            {"data": {"name": "mixture", "corpora": {"a": {"name": "tsv", "train": "a"}}}},
            "`data` must have a validation split, but none is given: its validation files or, for running text, ",
        ),
        (
            "text",
            {"preparation.streaming": True, "trainer.max_steps": None, "trainer.max_epochs": 1},
            "`preparation.streaming: true` needs `trainer.max_steps`: a stream has no known length.",
        ),
        (
            "text",
            {"preparation.streaming": True, "trainer.max_epochs": 1},
            "`trainer.max_epochs` has no meaning with `preparation.streaming: true`; leave it out.",
        ),
        (
            "text",
            {"batching.max_tokens_per_batch": 15},
            "`batching.max_tokens_per_batch` must be at least `model.max_length` (16), the length of every row, but is",
        ),
        ("text", {"preparation.shuffle_buffer": 9}, "`shuffle_buffer` has no effect without `streaming: true`"),
        (
            "translation",
            {"tokenizer": {"name": "bpe", "dropout": 0.1}, "batching.packing": True},
            "so with `batching.packing` it needs `preparation.streaming: true`.",
        ),
        (
            "text",
            {"tokenizer": {"name": "bpe", "dropout": 0.1}},
            "`tokenizer.dropout` of a language model needs `preparation.streaming: true`",
        ),
        (
            "text",
            {"tokenizer": {"name": "file", "path": "a.json", "target_path": "b.json"}},
            "`tokenizer.target_path` has no effect on a language model; leave it out.",
        ),
        (
            "text",
            {"batching.packing": True},
            "`batching.packing` needs documents, but `data.documents: running` has none.",
        ),
        ("text", {"data.filters": {"max_words": 9}}, "`filters` have no effect with `documents: running`"),
        ("text", {"validation.num_generated": 3}, "`validation.num_generated` has no effect on a language model"),
        (
            "text",
            {"checkpoint.monitor": "validation/bleu"},
            "must be one of validation/loss, validation/perplexity, val",
        ),
        ("translation", {"checkpoint.monitor": "train/loss"}, "but is 'train/loss'."),
        (
            "translation",
            {"checkpoint.monitor": "validation/bleu", "validation.num_generated": 0},
            "`checkpoint.monitor: validation/bleu` needs `validation.num_generated` above 0, but it is 0.",
        ),
        (
            "translation",
            {"early_stopping": {"monitor": "validation/chrf"}, "validation.num_generated": 0},
            "`early_stopping.monitor: validation/chrf` needs `validation.num_generated` above 0",
        ),
        ("translation", {"early_stopping": {"patience": 0}}, "greater than or equal to 1"),
        ("translation", {"loggers": [{"name": "comet"}]}, "'csv', 'tensorboard', 'wandb'"),
        ("translation", {"optimizer.betas": [0.9, 1.0]}, "less than 1"),
        ("translation", {"scheduler.final_fraction": 0.1}, "Extra inputs are not permitted"),
    ],
)
def test_contradictions_are_refused(run_settings: Settings, kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainConfig.from_plain(run_settings(kind, changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["translation", "text"])
def test_plain_data_and_back(run_settings: Settings, kind: str) -> None:
    config = TrainConfig.from_plain(run_settings(kind, {"loggers": [{"name": "csv"}], "optimizer.betas": [0.5, 0.6]}))
    assert config.is_translation == (kind == "translation")
    assert TrainConfig.from_plain(config.to_plain()) == config
    assert config.optimizer.betas == (0.5, 0.6)


def test_separate_vocabularies_need_an_untied_source(run_settings: Settings) -> None:
    changes = {"tokenizer.joint": False, "model.tie_embeddings": "decoder"}
    assert TrainConfig.from_plain(run_settings("translation", changes)).tokenizer.joint is False


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("translation", {"tokenizer": {"name": "bpe", "dropout": 0.1}}),
        ("translation", {"tokenizer": {"name": "bpe"}, "batching.packing": True}),
        (
            "translation",
            {"tokenizer": {"name": "bpe", "dropout": 0.1}, "batching.packing": True, "preparation.streaming": True},
        ),
        ("text", {"tokenizer": {"name": "bpe", "dropout": 0.1}, "preparation.streaming": True}),
        ("text", {"data": {"name": "python_docs"}, "batching.packing": True}),
        ("text", {"r_drop": 5.0, "model.dropout": 0.1}),
        ("text", {"r_drop": 5.0, "model.embedding_dropout": 0.1}),
        ("translation", {"r_drop": 5.0, "model.attention_dropout": 0.1}),
        ("translation", {"r_drop": 5.0, "model.activation_dropout": 0.1}),
        ("text", {"preparation": {"streaming": True, "shuffle_buffer": 9}}),
    ],
)
def test_what_goes_together_is_accepted(run_settings: Settings, kind: str, changes: dict[str, Any]) -> None:
    config = TrainConfig.from_plain(run_settings(kind, changes))
    assert TrainConfig.from_plain(config.to_plain()) == config


def test_which_way_is_better(run_settings: Settings) -> None:
    translation, text = (TrainConfig.from_plain(run_settings(kind)) for kind in ("translation", "text"))
    directions = {
        "validation/loss": "min",
        "validation/perplexity": "min",
        "validation/bleu": "max",
        "validation/chrf": "max",
        "validation/exact_match": "max",
    }
    assert {name: translation.direction(name) for name in directions} == directions
    assert text.direction("validation/bits_per_byte") == "min"


def test_a_time_limit_in_seconds(run_settings: Settings) -> None:
    limits = {None: None, "00:00:00:09": 9, "01:02:03:04": 93_784}
    for text, seconds in limits.items():
        config = TrainConfig.from_plain(run_settings("text", {"trainer.max_time": text}))
        assert config.trainer.max_seconds == seconds
