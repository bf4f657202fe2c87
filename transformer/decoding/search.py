"""The search that a configuration names. A new strategy is its own file, its settings and one arm here."""

from collections.abc import Collection, Sequence
from typing import assert_never

from transformer.decoding.beam import beam_search
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.interface import Hypothesis, Request, StepModel
from transformer.decoding.rules import Rules
from transformer.decoding.sampling import sample_search


def search(
    model: StepModel,
    config: GreedyConfig | BeamConfig | SampleConfig,
    requests: Sequence[Request],
    *,
    eos_id: int,
    suppressed: Collection[int] = (),
    num_best: int = 1,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each example, best first; of sampling, independent samples.

    Args:
        model: a decoding session.
        config: the search and its settings.
        requests: of each example: lengths, prefix, phrases, line number.
        eos_id: the token that ends an output.
        suppressed: tokens that no output contains, such as padding.
        num_best: hypotheses for each example; a beam has at most as many as its size.
    """
    if num_best < 1:
        raise ValueError(f"the number of best hypotheses must be at least 1, but is {num_best}.")
    rules = Rules(config, requests, eos_id=eos_id, suppressed=suppressed)
    match config:
        case GreedyConfig():
            if num_best != 1:
                raise ValueError(f"greedy search gives one output, but {num_best} are asked for; use a beam.")
            return [[hypothesis] for hypothesis in greedy_search(model, rules)]
        case BeamConfig():
            return beam_search(model, config, rules, num_best=num_best)
        case SampleConfig():
            return sample_search(model, config, rules, num_samples=num_best)
        case _:
            assert_never(config)
