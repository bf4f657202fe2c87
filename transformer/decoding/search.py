"""The search that a configuration names. A new strategy is its own file, its settings and one arm here."""

from collections.abc import Sequence
from typing import assert_never

from transformer.decoding.beam import beam_search
from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.interface import Hypothesis, StepModel
from transformer.decoding.sampling import sample_search


def search(
    model: StepModel, config: DecodingConfig, *, eos_id: int, limits: Sequence[int], lines: Sequence[int]
) -> list[Hypothesis]:
    """The best hypothesis of each example.

    Args:
        model: a decoding session.
        config: the search and its settings.
        eos_id: the token that ends an output.
        limits: greatest number of tokens of each example, the end token included.
        lines: number of each example in the user's input; decides its random draws.
    """
    if config.max_new_tokens is not None:
        limits = [min(limit, config.max_new_tokens) for limit in limits]
    match config:
        case GreedyConfig():
            return greedy_search(model, eos_id=eos_id, limits=limits)
        case BeamConfig():
            return [best[0] for best in beam_search(model, config, eos_id=eos_id, limits=limits)]
        case SampleConfig():
            return sample_search(model, config, eos_id=eos_id, limits=limits, lines=lines)
        case _:
            assert_never(config)
