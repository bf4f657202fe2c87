"""How far the scores of several runs of the same settings lie apart."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from transformer.metrics.text import Score


class Spread(NamedTuple):
    """A score over several runs.

    Attributes:
        name: of the score.
        mean: over the runs.
        deviation: the sample's standard deviation, with n - 1 in the denominator.
        n: number of runs.
        signature: of the score.
    """

    name: str
    mean: float
    deviation: float
    n: int
    signature: str


def spread(runs: Sequence[Sequence[Score]]) -> list[Spread]:
    """Mean and standard deviation of each score.

    Args:
        runs: the scores of each run, the same ones in the same order.

    Raises:
        ValueError: for fewer than two runs, or runs with other scores than the first.
    """
    if len(runs) < 2:
        raise ValueError(f"a deviation needs at least 2 runs, but there are {len(runs)}.")
    kinds = [[(score.name, score.signature) for score in run] for run in runs]
    for kind in kinds:
        if kind != kinds[0]:
            raise ValueError(f"all runs must have the scores of the first, {kinds[0]}, but one has {kind}.")
    return [
        Spread(name, statistics.fmean(values), statistics.stdev(values), len(values), signature)
        for (name, signature), values in zip(
            kinds[0], zip(*([score.value for score in run] for run in runs), strict=True), strict=True
        )
    ]
