"""Several models as one: the mean of their distributions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from transformer.decoding.interface import StepModel


class EnsembleSteps:
    """A session over the same examples in several models with the same vocabulary.

    Its logits are the logarithm of the mean probability, so one model that is sure can outweigh others that are not.

    Args:
        sessions: one of each model.
    """

    def __init__(self, sessions: Sequence[StepModel]) -> None:
        self._sessions = sessions

    def start(self) -> Tensor:
        """Logits (N, V) of each example's first token."""
        return _mean([session.start() for session in self._sessions])

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        """Logits (M, V) after rows ``parents_M`` continued with ``tokens_M``."""
        return _mean([session.step(tokens_M, parents_M) for session in self._sessions])


def _mean(logits: Sequence[Tensor]) -> Tensor:
    log_probabilities = torch.stack([each.log_softmax(-1, dtype=torch.float32) for each in logits])
    return log_probabilities.logsumexp(0) - math.log(len(logits))
