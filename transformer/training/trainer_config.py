"""Settings of a run's length, hardware, validation, checkpoints and loggers. Imports no torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config


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
    compile: bool = Field(False, description="torch.compile the layers")
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
        None,
        ge=0,
        description="translation only: validation sentences translated and scored, the first ones of each corpus; "
        "null: 200",
    )
    num_shown: int = Field(3, ge=0, description="sample outputs shown each time")
    attention: bool | None = Field(
        None,
        description="pictures of the attention in one example, for loggers that take images; true: as files as well; "
        "null: where there is such a logger",
    )


class CheckpointConfig(Config):
    """What is kept of a run besides its end."""

    every_n_steps: int = Field(500, ge=1, description="optimizer steps between saves of last.ckpt, which a run resumes")
    monitor: str = Field("validation/loss", description="metric that decides which checkpoints are best")
    keep_best: int = Field(1, ge=1, description="number of best checkpoints kept")
    keep_latest: int = Field(
        0, ge=0, description="number of checkpoints kept of the latest validations, to be averaged"
    )


class EarlyStoppingConfig(Config):
    """Stop when a metric has not improved for a while."""

    monitor: str = "validation/loss"
    patience: int = Field(5, ge=1, description="validations without improvement")
    min_delta: float = Field(0.0, ge=0, description="smaller changes are no improvement")


class DivergenceConfig(Config):
    """What happens when a run diverges: updates are skipped, then the run goes back to a checkpoint, then it stops.

    An update is skipped if its loss or gradient is not finite, or if the loss explodes.
    """

    loss_factor: float = Field(
        3.0,
        gt=1,
        allow_inf_nan=True,
        description="a loss per token explodes above this times its lowest running mean, or 1 nat if greater; .inf: "
        "none does",
    )
    max_skips: int = Field(10, ge=1, description="updates skipped in a row before the run goes back to a checkpoint")
    max_rollbacks: int = Field(3, ge=0, description="times that a run goes back before it stops instead")
    recovery_steps: int = Field(1000, ge=1, description="optimizer steps after which a roll-back no longer counts")


class EmaConfig(Config):
    """Exponential moving average of the weights, which is validated, kept as best and bundled instead of them."""

    decay: float = Field(0.999, gt=0, lt=1, description="share of the average that an update of it keeps")
    start_step: int = Field(0, ge=0, description="optimizer steps before the average begins, equal to the weights")
    every_n_steps: int = Field(1, ge=1, description="optimizer steps between updates of the average")


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
