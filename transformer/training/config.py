"""Everything that a training run is told. Imports no torch: a wrong setting is reported at once."""

from typing import Annotated, Literal, Self

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


class AdamWConfig(Config):
    """AdamW (Loshchilov & Hutter 2019); weight decay applies to matrices only, not to biases, gains or embeddings."""

    name: Literal["adamw"]
    learning_rate: float = Field(gt=0, description="the peak; the scheduler multiplies it by at most 1")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.98)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)


OptimizerConfig = AdamWConfig


class _WarmupConfig(Config):
    warmup_steps: int = Field(0, ge=0, description="optimizer steps of linear rise; step s has rate s / warmup_steps")


class InverseSqrtConfig(_WarmupConfig):
    """After the warm-up, ``sqrt(warmup_steps / step)`` (Vaswani et al. 2017, section 5.3)."""

    name: Literal["inverse_sqrt"]


class CosineConfig(_WarmupConfig):
    """After the warm-up, half a cosine down to ``final_fraction`` at the last step."""

    name: Literal["cosine"]
    final_fraction: float = Field(0.1, ge=0, le=1)


class WarmupStableDecayConfig(_WarmupConfig):
    """After the warm-up, constant, then linear towards 0 over the last ``decay_fraction`` of all steps."""

    name: Literal["warmup_stable_decay"]
    decay_fraction: float = Field(0.5, gt=0, le=1)


class ConstantConfig(_WarmupConfig):
    """After the warm-up, constant."""

    name: Literal["constant"]


SchedulerConfig = Annotated[
    InverseSqrtConfig | CosineConfig | WarmupStableDecayConfig | ConstantConfig, Field(discriminator="name")
]


class TrainerConfig(Config):
    """Length and hardware of a run; names and meanings are those of ``lightning.Trainer``."""

    max_steps: int | None = Field(None, ge=1, description="optimizer steps; counted from the very start of the run")
    max_epochs: int | None = Field(None, ge=1, description="passes over the training data; the shorter limit counts")
    max_time: str | None = Field(
        None, pattern=r"^\d\d:\d\d:\d\d:\d\d$", description="wall-clock limit, days:hours:minutes:seconds"
    )
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    devices: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    num_nodes: int = Field(1, ge=1)
    strategy: Literal["auto", "ddp"] = "auto"
    precision: Literal["auto", "bf16-mixed", "16-mixed", "32-true", "64-true"] = Field(
        "auto", description="auto: bf16-mixed where the hardware has bfloat16, else 32-true"
    )
    accumulate_grad_batches: int = Field(1, ge=1, description="batches per optimizer step")
    gradient_clip_val: float | None = Field(1.0, gt=0, description="greatest gradient norm, of the loss per token")
    log_every_n_steps: int = Field(10, ge=1)

    @property
    def max_seconds(self) -> int | None:
        """`max_time` in seconds."""
        if self.max_time is None:
            return None
        days, hours, minutes, seconds = (int(part) for part in self.max_time.split(":"))
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_steps is None and self.max_epochs is None:
            raise ValueError("one of `trainer.max_steps` and `trainer.max_epochs` must be given.")
        return self


class ValidationConfig(Config):
    """How often a run is validated, and on what."""

    every_n_steps: int = Field(
        500, ge=1, description="optimizer steps between validations; the last step always is one"
    )
    num_generated: int | None = Field(
        None, ge=0, description="translation only: validation sentences translated and scored; null: 200"
    )
    num_shown: int = Field(3, ge=0, description="sample outputs shown each time")


class CheckpointConfig(Config):
    """What is kept of a run besides its end."""

    every_n_steps: int = Field(500, ge=1, description="optimizer steps between saves of last.ckpt, which a run resumes")
    monitor: str = Field("validation/loss", description="metric that decides which checkpoints are best")
    keep_best: int = Field(1, ge=1, description="number of best checkpoints kept")


class EarlyStoppingConfig(Config):
    """Stop when a metric has not improved for a while."""

    monitor: str = "validation/loss"
    patience: int = Field(5, ge=1, description="validations without improvement")
    min_delta: float = Field(0.0, ge=0, description="smaller changes are no improvement")


class CsvLoggerConfig(Config):
    """Metrics as a table, metrics.csv."""

    name: Literal["csv"]


class TensorBoardLoggerConfig(Config):
    """Event files for TensorBoard."""

    name: Literal["tensorboard"]


class WandbLoggerConfig(Config):
    """Weights & Biases; offline by default, so nothing leaves the run's folder until ``wandb sync``."""

    name: Literal["wandb"]
    project: str = "transformer"
    offline: bool = True


LoggerConfig = Annotated[CsvLoggerConfig | TensorBoardLoggerConfig | WandbLoggerConfig, Field(discriminator="name")]


class TrainConfig(Config):
    """One training run."""

    seed: int = Field(1, ge=0)
    data: DataConfig
    tokenizer: TokenizerConfig
    preparation: PreparationConfig = PreparationConfig()
    batching: BatchingConfig
    model: ModelConfig
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    trainer: TrainerConfig
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    early_stopping: EarlyStoppingConfig | None = None
    decoding: DecodingConfig
    loggers: tuple[LoggerConfig, ...] = ()

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
