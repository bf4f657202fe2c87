"""Speculative sampling: a small model drafts, a large one checks, and the outputs are the large one's.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding"; Chen et al. 2023.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.candidates import check_numbers, log_normalizers
from transformer.decoding.config import GreedyConfig, SampleConfig
from transformer.decoding.interface import Hypothesis
from transformer.decoding.rules import PhraseState, Rules
from transformer.decoding.sampling import new_generator, probabilities


class RewindableModel(Protocol):
    """A decoding session over one example that can be asked about any output, best a longer or shorter one."""

    @property
    def room(self) -> int:
        """Tokens of an output that the model can read at most."""

    def next_logits(self, output: Sequence[int], count: int) -> Tensor:
        """Logits (count, V) of the token behind each of the last ``count`` beginnings of an output, itself the last.

        The session does not use them again: a search may write into them.
        """


class Drafted(NamedTuple):
    """How many tokens a draft model proposed, and how many of them were taken."""

    proposed: int
    taken: int


@torch.no_grad()
def speculative_search(
    model: RewindableModel,
    draft: RewindableModel,
    config: GreedyConfig | SampleConfig,
    rules: Rules,
    *,
    draft_tokens: int,
    num_samples: int = 1,
) -> tuple[list[Hypothesis], Drafted]:
    """Outputs of one example, independent of each other, and how useful the draft was.

    In each round the draft proposes tokens from its distribution q, and the model computes its own distribution p
    behind each of them in one pass. A proposed token x is taken with probability ``min(1, p(x) / q(x))``; the first one
    that is not is replaced by one from ``max(p - q, 0)``, normalised, and ends the round. If all are taken, p behind
    them gives one token more. That makes every token exactly one from p (Leviathan et al. 2023, appendix A.1), whatever
    the draft; a bad one only costs time. Temperature, cuts and rules belong to both distributions. Without temperature
    the output is that of greedy search.

    An output's draws depend on ``config.seed``, the line and its own number only. They are others than those of
    sampling without a draft.

    Args:
        model: a session of the model whose outputs are wanted.
        draft: a session of the draft model, with the same vocabulary; where it cannot read on, the model goes on alone.
        config: greedy search or sampling.
        rules: of one request. Required phrases need a beam.
        draft_tokens: tokens proposed in a round at most.
        num_samples: outputs; of greedy search only one.
    """
    [request] = rules.requests
    if request.required is not None:
        raise ValueError("required phrases need a beam of 2 or more; drafted tokens cannot see to them.")
    if isinstance(config, GreedyConfig):
        if num_samples != 1:
            raise ValueError(f"greedy search gives one output, but {num_samples} are asked for.")
        config = SampleConfig(name="sample", temperature=0.0)
    outputs = [
        _Output(model, draft, config, rules, new_generator(config.seed, request.line, number))
        for number in range(num_samples)
    ]
    for output in outputs:
        while not output.complete:
            output.extend(draft_tokens)
    hypotheses = [
        Hypothesis(each.tokens, sum(each.gains), sum(each.gains), each.finished, each.gains) for each in outputs
    ]
    return hypotheses, Drafted(sum(each.proposed for each in outputs), sum(each.taken for each in outputs))


class _Output:
    """One output and its random draws."""

    def __init__(
        self,
        model: RewindableModel,
        draft: RewindableModel,
        config: SampleConfig,
        rules: Rules,
        generator: np.random.Generator,
    ) -> None:
        self._model, self._draft, self._config, self._rules, self._generator = model, draft, config, rules, generator
        [self._state] = rules.start([0])
        self._limit = rules.requests[0].limit
        self.tokens: list[int] = []
        self.gains: list[float] = []
        self.finished, self._stuck = False, False
        self.proposed = self.taken = 0

    @property
    def complete(self) -> bool:
        return self.finished or self._stuck or len(self.tokens) >= self._limit

    def extend(self, draft_tokens: int) -> None:
        """One round: draft some tokens, take as many as the model would have drawn, and one of its own."""
        drafted, draft_LV, states = self._propose(draft_tokens)
        eos_id = self._rules.eos_id
        beginning = [*self.tokens, *(token for token in drafted if token != eos_id)]
        count = len(beginning) - len(self.tokens) + 1
        logits_LV = self._model.next_logits(beginning, count)
        normalizers_L = log_normalizers(logits_LV)
        check_numbers(normalizers_L.cpu().numpy())
        ranked_LV = torch.cat(
            [
                self._ranked(logits_LV[place : place + 1], beginning[: len(self.tokens) + place], states[place])
                for place in range(count)
            ]
        )
        possible_L = ranked_LV.amax(-1).isfinite().tolist()
        model_LV = probabilities(ranked_LV.cpu(), self._config).numpy()
        self.proposed += len(drafted)
        for place in range(count):
            if not possible_L[place]:  # everything is forbidden: an unfinished output
                self._stuck = True
                return
            if place < len(drafted):
                token, kept = self._check(drafted[place], draft_LV[place], model_LV[place])
                self.taken += kept
            else:
                token, kept = self._draw(model_LV[place]), False
            self.gains.append(float(logits_LV[place, token].to(normalizers_L.dtype) - normalizers_L[place]))
            if token == eos_id:
                self.finished = True
                return
            self.tokens.append(token)
            self._state = self._rules.advance(0, self._state, token)
            if not kept:
                return

    def _propose(self, draft_tokens: int) -> tuple[list[int], list[np.ndarray], list[PhraseState]]:
        """Tokens of the draft, the distributions they come from, and the rules' states before each and after the last.

        One place is left for the model's own token. An end token is the last one.
        """
        room = self._draft.room - len(self.tokens) + 1
        drafted: list[int] = []
        draft_LV: list[np.ndarray] = []
        states = [self._state]
        for _ in range(min(draft_tokens, self._limit - len(self.tokens) - 1, room)):
            beginning = [*self.tokens, *drafted]
            logits_1V = self._draft.next_logits(beginning, 1)
            ranked_1V = self._ranked(logits_1V, beginning, states[-1])
            if not ranked_1V.amax().isfinite():  # everything is forbidden, or the draft is broken
                check_numbers(log_normalizers(logits_1V).cpu().numpy())
                break
            draft_LV.append(probabilities(ranked_1V.cpu(), self._config)[0].numpy())
            drafted.append(self._draw(draft_LV[-1]))
            if drafted[-1] == self._rules.eos_id:
                break
            states.append(self._rules.advance(0, states[-1], drafted[-1]))
        return drafted, draft_LV, states

    def _ranked(self, logits_1V: Tensor, tokens: Sequence[int], state: PhraseState) -> Tensor:
        """Logits with minus infinity for what may not come behind ``tokens``."""
        tokens_1T = np.array([tokens], dtype=np.int64)
        ranked_1V = self._rules.penalize(logits_1V, tokens_1T) if self._rules.change_scores else logits_1V.clone()
        self._rules.forbid(ranked_1V, tokens_1T, np.zeros(1, dtype=np.int64), [state])
        return ranked_1V

    def _check(self, token: int, draft_V: np.ndarray, model_V: np.ndarray) -> tuple[int, bool]:
        """The drafted token or another one in its place, and whether it was taken."""
        if self._generator.random() * draft_V[token] < model_V[token]:
            return token, True
        rest_V = np.maximum(model_V - draft_V, 0.0)
        return self._draw(rest_V if rest_V.any() else model_V), False

    def _draw(self, weights_V: np.ndarray) -> int:
        """A token with the probability of its share of the weights."""
        cumulative_V = weights_V.cumsum()
        place = cumulative_V.searchsorted(self._generator.random() * cumulative_V[-1], side="right")
        return min(int(place), int(weights_V.nonzero()[0][-1]))
