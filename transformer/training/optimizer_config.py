"""Settings of optimizers and learning-rate schedules. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field

from transformer.config import Config


class AdamWConfig(Config):
    """AdamW (Loshchilov & Hutter 2019); weight decay applies to matrices only, not to biases, gains or embeddings."""

    name: Literal["adamw"]
    learning_rate: float = Field(gt=0, description="the peak; the scheduler multiplies it by at most 1")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.98)
    eps: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)


class MuonConfig(Config):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW without weight decay for everything else."""

    name: Literal["muon"]
    learning_rate: float = Field(gt=0, description="peak of the matrices; times about the spectral norm of an update")
    momentum: float = Field(0.95, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0, description="of the matrices")
    embedding_learning_rate: float = Field(gt=0, description="peak of token and position embeddings, by AdamW")
    output_learning_rate: float = Field(gt=0, description="peak of an output layer that is not tied, by AdamW")
    other_learning_rate: float = Field(gt=0, description="peak of gains and biases, by AdamW")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    eps: float = Field(1e-10, gt=0, description="of AdamW")


OptimizerConfig = Annotated[AdamWConfig | MuonConfig, Field(discriminator="name")]


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
