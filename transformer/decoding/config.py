"""Settings of the searches."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config

LARGEST_LENGTH_PENALTY = 10.0
"""Far beyond what is of use (about 0.5 to 2), and its powers of lengths are still numbers."""


LARGEST_NUMBER, LARGEST_FACTOR = 2**31 - 1, 1e6
"""Numbers of tokens beyond any model's."""


class _SearchConfig(Config):
    max_new_tokens: int | None = Field(
        None, ge=0, le=LARGEST_NUMBER, description="tokens at most; null: as many as the model can"
    )
    min_new_tokens: int = Field(0, ge=0, le=LARGEST_NUMBER, description="tokens at least before the output may end")
    max_length_factor: float | None = Field(
        None,
        gt=0,
        le=LARGEST_FACTOR,
        description="translation: tokens at most for each source token; null: 20 and 2 for each",
    )
    min_length_factor: float = Field(
        0.0, ge=0, le=LARGEST_FACTOR, description="translation: tokens at least for each source token"
    )
    repetition_penalty: float = Field(
        1.0, gt=0, description="logits of tokens in the output so far are divided by it if positive, else multiplied"
    )
    no_repeat_ngram: int | None = Field(None, ge=1, description="no sequence of so many tokens comes twice")

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"`min_new_tokens` must not be above `max_new_tokens` ({self.max_new_tokens}), "
                f"but is {self.min_new_tokens}."
            )
        if self.max_length_factor is not None and self.min_length_factor > self.max_length_factor:
            raise ValueError(
                f"`min_length_factor` must not be above `max_length_factor` ({self.max_length_factor:g}), "
                f"but is {self.min_length_factor:g}."
            )
        return self


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
    length_penalty: float = Field(
        1.0, ge=0, le=LARGEST_LENGTH_PENALTY, description="exponent of the length; 0 compares plain probabilities"
    )
    coverage_penalty: float = Field(
        0.0, ge=0, description="translation: weight of the penalty for source tokens that got little attention"
    )
    patience: float = Field(
        1.0, ge=1, le=LARGEST_FACTOR, description="the beam starts to shrink after (patience - 1) * size endings"
    )
    groups: int = Field(1, ge=1, description="diverse beam search: groups that the beam is divided into")
    diversity: float = Field(0.0, ge=0, description="with groups: what a token loses that another group took")

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.size % self.groups:
            raise ValueError(f"`groups` must divide `size` ({self.size}), but is {self.groups}.")
        if (self.groups > 1) != (self.diversity > 0):
            raise ValueError(
                "`groups` above 1 and `diversity` above 0 belong together, but they are "
                f"{self.groups} and {self.diversity:g}."
            )
        return self


class SampleConfig(_SearchConfig):
    """Draw each token at random from the model's distribution, possibly sharpened and cut."""

    name: Literal["sample"]
    temperature: float = Field(1.0, ge=0, description="logits are divided by it; 0 is greedy")
    top_k: int | None = Field(None, ge=1, description="only the k most probable tokens")
    top_p: float | None = Field(None, gt=0, le=1, description="only the smallest set of tokens with this probability")
    min_p: float | None = Field(
        None, gt=0, le=1, description="only tokens at least this share as probable as the most probable one"
    )
    epsilon: float | None = Field(None, gt=0, lt=1, description="only tokens of at least this probability")
    seed: int = Field(1, ge=0, description="with the line's number decides its random draws, whatever the batch")


SearchConfig = Annotated[GreedyConfig | BeamConfig | SampleConfig, Field(discriminator="name")]


class MbrConfig(Config):
    """Minimum Bayes risk: of many samples take the one most like all of them (Eikema and Aziz 2020)."""

    name: Literal["mbr"]
    samples: int = Field(32, ge=2, description="translations drawn per sentence")
    utility: Literal["chrf", "bleu"] = Field("chrf", description="how the likeness of two translations is measured")
    sampling: SampleConfig = Field(
        SampleConfig(name="sample", epsilon=0.02), description="how they are drawn (Freitag et al. 2023: epsilon 0.02)"
    )

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        if self.sampling.temperature == 0:
            raise ValueError("`sampling.temperature` must be above 0, or all samples are the same, but is 0.")
        return self


DecodingConfig = Annotated[GreedyConfig | BeamConfig | SampleConfig | MbrConfig, Field(discriminator="name")]
