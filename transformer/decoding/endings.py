"""The outputs that a beam search has ended, and what live rows could still reach."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.config import BeamConfig
from transformer.decoding.interface import Hypothesis, Request
from transformer.decoding.lengths import rounded_up
from transformer.decoding.penalty import length_penalty


class Endings:
    """Hypotheses of each example N, and the places that are left to its groups G.

    Attributes:
        limits_N: tokens at most, the end token included.
        hypotheses: what each example has ended with so far.
    """

    def __init__(self, config: BeamConfig, requests: Sequence[Request], num_best: int) -> None:
        self._config, self._num_best = config, num_best
        self.limits_N = np.array([request.limit for request in requests], dtype=np.int64)
        self._bounds_N = np.array([self._penalty(max(request.limit, 1)) for request in requests])
        self._bars_N = np.full(len(requests), -np.inf)  # the num_best-th best finished score
        self._group_size = config.size // config.groups
        self._endings_left_NG = np.full(
            (len(requests), config.groups), rounded_up(config.patience, self._group_size), dtype=np.int64
        )
        self.hypotheses: list[list[Hypothesis]] = [
            [] if request.limit > 0 else [Hypothesis([], 0.0, 0.0, False, [])] for request in requests
        ]

    def places(self) -> np.ndarray:
        """Places (N, G) of each group of each example."""
        return np.minimum(self._endings_left_NG, self._group_size)

    def add(
        self,
        example: int,
        group: int,
        tokens: list[int],
        own: list[float],
        *,
        total: float,
        finished: bool,
        coverage: Tensor | None,
    ) -> None:
        """Take an output in; ``tokens`` end with the end token if it is finished."""
        self._endings_left_NG[example, group] -= 1
        score = total / self._penalty(max(len(tokens), 1))
        if coverage is not None:
            # A source token without any attention counts as the smallest number: scores stay finite.
            smallest = torch.finfo(coverage.dtype).tiny
            score += self._config.coverage_penalty * float(coverage.clamp(smallest, 1.0).log().sum())
        hypothesis = Hypothesis(tokens[:-1] if finished else tokens, math.fsum(own), score, finished, own)
        others = self.hypotheses[example]
        if any(other.finished == finished and other.tokens == hypothesis.tokens for other in others):
            return  # another group has found it
        others.append(hypothesis)
        scores = sorted((other.score for other in others if other.finished), reverse=True)
        if len(scores) >= self._num_best:
            self._bars_N[example] = scores[self._num_best - 1]

    def may_win(self, example_X: np.ndarray, total_X: np.ndarray) -> np.ndarray:
        """Whether any live row of each row's example could still be among the best."""
        may_win_N = np.zeros(len(self.limits_N), dtype=bool)
        np.logical_or.at(may_win_N, example_X, total_X / self._bounds_N[example_X] > self._bars_N[example_X])
        open_X: np.ndarray = may_win_N[example_X]
        return open_X

    def best(self) -> list[list[Hypothesis]]:
        """The best of each example, best first."""
        return [sorted(hypotheses, key=_rank)[: self._num_best] for hypotheses in self.hypotheses]

    def _penalty(self, length: int) -> float:
        return length_penalty(self._config.normalization, self._config.length_penalty, length)


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.finished, -hypothesis.score
