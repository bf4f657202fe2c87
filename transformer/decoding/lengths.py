"""How long outputs may and must be."""

import math
from typing import NamedTuple

from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig

EXTRA_TOKENS, TOKENS_PER_SOURCE_TOKEN = 20, 2


class Lengths(NamedTuple):
    """Of one output: tokens at least before the end token, and tokens at most, the end token included."""

    minimum: int
    limit: int


def translation_lengths(
    source_length: int, config: GreedyConfig | BeamConfig | SampleConfig, max_length: int
) -> Lengths:
    """For the translation of a source of so many tokens, its end token included; no other source matters.

    Without ``max_length_factor`` a translation has at most 20 tokens and 2 for each source token. A minimum wins over
    that, but not over ``max_new_tokens`` or the model's ``max_length``.
    """
    if config.max_length_factor is None:
        limit = EXTRA_TOKENS + TOKENS_PER_SOURCE_TOKEN * source_length
    else:
        limit = rounded_up(config.max_length_factor, source_length)
    minimum = max(config.min_new_tokens, rounded_up(config.min_length_factor, source_length))
    longest = max_length if config.max_new_tokens is None else min(max_length, config.max_new_tokens)
    return Lengths(minimum, min(max(limit, minimum + 1), longest))


def rounded_up(factor: float, number: int) -> int:
    """The product, rounded up as on paper: of floats 1.12 * 25 is a little above 28."""
    return math.ceil(round(factor * number, 9))


def continuation_lengths(room: int, config: GreedyConfig | BeamConfig | SampleConfig) -> Lengths:
    """For the continuation of a prompt that leaves room for so many tokens."""
    return Lengths(config.min_new_tokens, room if config.max_new_tokens is None else min(room, config.max_new_tokens))


def check_no_source(config: GreedyConfig | BeamConfig | SampleConfig) -> None:
    """Refuse settings about a source where there is none."""
    if isinstance(config, BeamConfig) and config.coverage_penalty > 0:
        raise ValueError("`coverage_penalty` is about source tokens, but a language model has no source.")
    if config.max_length_factor is not None or config.min_length_factor > 0:
        raise ValueError(
            "`max_length_factor` and `min_length_factor` count source tokens, but a language model has no source; "
            "use `max_new_tokens` and `min_new_tokens`."
        )
