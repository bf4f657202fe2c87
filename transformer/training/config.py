"""Everything that a training run is told. Imports no torch: a wrong setting is reported at once."""

import math
from typing import Self

from pydantic import Field, model_validator

from transformer.config import Config
from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.config import DataConfig
from transformer.data.corpora.document_config import TextCorpusConfig, TextMixtureConfig
from transformer.data.corpora.pair_config import MixtureConfig
from transformer.data.subwords.config import BpeConfig, FileTokenizerConfig, TokenizerConfig
from transformer.decoding.config import DecodingConfig, MbrConfig
from transformer.decoding.lengths import check_no_source
from transformer.metrics.names import GENERATED_METRICS, TEXT_METRICS, TRANSLATION_METRICS, Direction
from transformer.models.config import EncoderDecoderConfig, ModelConfig
from transformer.training.optimizer_config import OptimizerConfig, SchedulerConfig
from transformer.training.trainer_config import (
    CheckpointConfig,
    DivergenceConfig,
    EarlyStoppingConfig,
    EmaConfig,
    LoggerConfig,
    TrainerConfig,
    ValidationConfig,
)


class TrainConfig(Config):
    """One training run."""

    seed: int = Field(1, ge=0)
    data: DataConfig
    tokenizer: TokenizerConfig
    preparation: PreparationConfig = PreparationConfig()
    batching: BatchingConfig
    model: ModelConfig
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    r_drop: float = Field(0.0, ge=0, description="weight of R-Drop's divergence; above 0 every batch passes twice")
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    trainer: TrainerConfig
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    early_stopping: EarlyStoppingConfig | None = None
    divergence: DivergenceConfig | None = DivergenceConfig()
    ema: EmaConfig | None = None
    decoding: DecodingConfig
    loggers: tuple[LoggerConfig, ...] = ()
    audit: bool = Field(True, description="check the initial model's behaviour before the first step of a new run")

    @property
    def is_translation(self) -> bool:
        """Whether this run trains an encoder-decoder on pairs; otherwise a decoder on text."""
        return isinstance(self.model, EncoderDecoderConfig)

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_text = isinstance(self.data, TextCorpusConfig)
        if self.is_translation == is_text:
            kind = "single texts" if is_text else "sentence pairs"
            needed = "decoder_only" if is_text else "encoder_decoder"
            raise ValueError(
                f"`data.name: {self.data.name}` gives {kind}, which need `model.name: {needed}`, but it is "
                f"{self.model.name}."
            )
        if isinstance(self.model, EncoderDecoderConfig):
            if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
                raise ValueError("`model.tie_embeddings: all` needs `tokenizer.joint: true`, but it is false.")
        else:
            for where, value in (
                ("batching.over_long", self.batching.over_long),
                ("validation.num_generated", self.validation.num_generated),
            ):
                if value is not None:
                    raise ValueError(f"`{where}` has no effect on a language model; leave it out.")
            self._check_decoding()
        self._check_data()
        model = self.model
        elementwise = (model.dropout, model.embedding_dropout_rate, model.attention_dropout, model.activation_dropout)
        if self.r_drop > 0 and max(elementwise) == 0:
            raise ValueError(
                "`r_drop` has no effect on a model without dropout, whose two passes are the same; give "
                "`model.dropout` or leave it out."
            )
        steps = self.trainer.max_steps
        if self.ema is not None and steps is not None:
            every = self.ema.every_n_steps
            first = max(1, math.ceil(self.ema.start_step / every)) * every  # it copies the weights
            if first >= steps:
                raise ValueError(
                    f"`ema.start_step` and `ema.every_n_steps` put the first update at step {first}, which must be "
                    f"below `trainer.max_steps` ({steps}) to have an effect."
                )
        self._check_monitor("checkpoint.monitor", self.checkpoint.monitor)
        if self.early_stopping is not None:
            self._check_monitor("early_stopping.monitor", self.early_stopping.monitor)
        return self

    def _check_data(self) -> None:
        """Refuse what does not go together between the data, the tokenizer and the batches."""
        if not self.data.has_validation:
            raise ValueError(
                "`data` must have a validation split, but none is given: its validation files or, for running text, "
                "`data.validation_fraction`."
            )
        if self.preparation.streaming and self.trainer.max_steps is None:
            raise ValueError("`preparation.streaming: true` needs `trainer.max_steps`: a stream has no known length.")
        if self.preparation.streaming and self.trainer.max_epochs is not None:
            raise ValueError("`trainer.max_epochs` has no meaning with `preparation.streaming: true`; leave it out.")
        mixed = isinstance(self.data, MixtureConfig | TextMixtureConfig)
        for name, corpus in (self.data.corpora if mixed else {"data": self.data}).items():  # type: ignore[union-attr]
            if self.preparation.streaming and corpus.filters.duplicates:  # type: ignore[union-attr]
                where = f"data.corpora.{name}" if mixed else name
                raise ValueError(
                    f"`{where}.filters.duplicates` needs to know the whole corpus, so it cannot go with "
                    "`preparation.streaming: true`."
                )
        if self.batching.max_tokens_per_batch < self.model.max_length and (
            self.batching.packing or not self.is_translation
        ):
            raise ValueError(
                f"`batching.max_tokens_per_batch` must be at least `model.max_length` ({self.model.max_length}), the "
                f"length of every row, but is {self.batching.max_tokens_per_batch}."
            )
        dropout = self.tokenizer.dropout if isinstance(self.tokenizer, BpeConfig | FileTokenizerConfig) else 0.0
        if dropout > 0 and self.batching.packing and not self.preparation.streaming:
            raise ValueError(
                "`tokenizer.dropout` changes the lengths of examples all the time, so with `batching.packing` it needs "
                "`preparation.streaming: true`."
            )
        if not isinstance(self.data, TextCorpusConfig):
            return
        if isinstance(self.tokenizer, FileTokenizerConfig) and self.tokenizer.target_path is not None:
            raise ValueError("`tokenizer.target_path` has no effect on a language model; leave it out.")
        if dropout > 0 and not self.preparation.streaming:
            raise ValueError(
                "`tokenizer.dropout` of a language model needs `preparation.streaming: true`: in the cache its text is "
                "cut once."
            )
        if self.batching.packing and not self.data.marks_documents:
            raise ValueError("`batching.packing` needs documents, but `data.documents: running` has none.")

    def _check_decoding(self) -> None:
        """Refuse searches of translation models for a language model."""
        if isinstance(self.decoding, MbrConfig):
            raise ValueError("`decoding: mbr` is for translation; a language model's continuations differ too much.")
        check_no_source(self.decoding)

    def _check_monitor(self, where: str, name: str) -> None:
        metrics = TRANSLATION_METRICS if self.is_translation else TEXT_METRICS
        if name not in metrics:
            raise ValueError(f"`{where}` must be one of {', '.join(metrics)}, but is {name!r}.")
        if name in GENERATED_METRICS and self.validation.num_generated == 0:
            raise ValueError(f"`{where}: {name}` needs `validation.num_generated` above 0, but it is 0.")

    def direction(self, metric: str) -> Direction:
        """Whether a smaller or a larger value of a validation metric is better."""
        return (TRANSLATION_METRICS if self.is_translation else TEXT_METRICS)[metric]
