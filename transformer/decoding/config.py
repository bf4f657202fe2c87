"""Settings of the searches."""

from typing import Annotated, Literal

from pydantic import Field

from transformer.config import Config


class _SearchConfig(Config):
    max_new_tokens: int | None = Field(None, ge=0, description="tokens at most; null: as many as the model can")


class GreedyConfig(_SearchConfig):
    """Take the most probable token at every step."""

    name: Literal["greedy"]


class BeamConfig(_SearchConfig):
    """Keep the most probable beginnings, return the best finished ones."""

    name: Literal["beam"]
    size: int = Field(5, ge=1, description="beginnings kept per sentence")
    normalization: Literal["gnmt", "average"] = Field(
        "gnmt", description="gnmt: divide by ((5 + length) / 6)^length_penalty; average: by length^length_penalty"
    )
    length_penalty: float = Field(1.0, ge=0, description="exponent of the length; 0 compares plain probabilities")


class SampleConfig(_SearchConfig):
    """Draw each token at random from the model's distribution, possibly sharpened and cut."""

    name: Literal["sample"]
    temperature: float = Field(1.0, ge=0, description="logits are divided by it; 0 is greedy")
    top_k: int | None = Field(None, ge=1, description="only the k most probable tokens")
    top_p: float | None = Field(None, gt=0, le=1, description="only the smallest set of tokens with this probability")
    seed: int = Field(1, ge=0, description="with the line's number decides its random draws, whatever the batch")


DecodingConfig = Annotated[GreedyConfig | BeamConfig | SampleConfig, Field(discriminator="name")]
