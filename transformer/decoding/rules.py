"""What the next token of each row may be: lengths, prefixes, phrases, repetitions."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from transformer.decoding.config import SearchConfig
from transformer.decoding.interface import Request
from transformer.decoding.terms import BansState, TermsState


class PhraseState(NamedTuple):
    """How much of its required and of its banned phrases a row contains; empty where there are none."""

    required: TermsState
    banned: BansState


class Prospect(NamedTuple):
    """How far an output has got with its required phrases.

    Attributes:
        progress: tokens of them that it contains.
        need: tokens, the end token included, that are enough to complete it.
    """

    progress: int
    need: int


class Rules:
    """The rules of one search over some examples; rows of different examples may obey different ones.

    Args:
        config: repetition settings.
        requests: of each example.
        eos_id: the token that ends an output.
        suppressed: tokens that no output contains, such as padding; the end token is always possible.
    """

    def __init__(
        self, config: SearchConfig, requests: Sequence[Request], *, eos_id: int, suppressed: Collection[int] = ()
    ) -> None:
        self.requests, self.eos_id = requests, eos_id
        self._suppressed = sorted(set(suppressed) - {eos_id})
        self._repetition_penalty, self._no_repeat_ngram = config.repetition_penalty, config.no_repeat_ngram
        self._minimums_N = np.array([request.minimum for request in requests], dtype=np.int64)
        self._prefix_lengths_N = np.array([len(request.prefix) for request in requests], dtype=np.int64)
        self.have_phrases = any(request.required or request.banned for request in requests)

    @property
    def change_scores(self) -> bool:
        """Whether rows are ranked by other scores than the model's own."""
        return self._repetition_penalty != 1

    def start(self, examples: Sequence[int]) -> list[PhraseState]:
        """The states of rows without any token yet."""
        requests = [self.requests[example] for example in examples]
        return [
            PhraseState(
                () if request.required is None else request.required.start(),
                () if request.banned is None else request.banned.start(),
            )
            for request in requests
        ]

    def advance(self, example: int, state: PhraseState, token: int) -> PhraseState:
        """The state of a row after one more token."""
        required, banned = self.requests[example].required, self.requests[example].banned
        return PhraseState(
            () if required is None else required.advance(state.required, token),
            () if banned is None else banned.advance(state.banned, token),
        )

    def forced(self, example_M: np.ndarray, states: Sequence[PhraseState], length: int) -> list[tuple[int, np.ndarray]]:
        """For rows with required phrases, ``length`` tokens long: groups of tokens that bring them nearer.

        One of each group is enough. Where all are there it is the end token: what follows could make part of a longer
        word of the last one. While the output is too short to end, it is what ends this word.
        """
        parts = []
        for row, (example, state) in enumerate(zip(example_M.tolist(), states, strict=True)):
            required = self.requests[example].required
            if required is None:
                continue
            if not required.met_at_end(state.required):
                parts += [(row, group) for group in required.forced(state.required)]
            elif length >= self._minimums_N[example]:
                parts.append((row, np.array([self.eos_id])))
            elif len(lasting := required.lasting(state.required)):
                parts.append((row, lasting))
        return parts

    def prospect(self, example: int, state: PhraseState, token: int) -> Prospect:
        """What one more token leaves to be done, of an example with required phrases."""
        required = self.requests[example].required
        assert required is not None
        if token == self.eos_id:
            return Prospect(required.progress(state.required), 0)
        after = required.advance(state.required, token)
        return Prospect(required.progress(after), required.need(after) + 1)

    def penalize(self, logits_MV: Tensor, tokens_MT: np.ndarray) -> Tensor:
        """Logits after a repetition penalty of the tokens in the output so far.

        Keskar et al. (2019) divide all their logits by it. Here, as has become common, negative ones are multiplied
        instead: division would make these tokens more probable.
        """
        earlier_MT = torch.from_numpy(tokens_MT).to(logits_MV.device)
        taken_MT = logits_MV.gather(1, earlier_MT)
        penalty = self._repetition_penalty
        taken_MT = torch.where(taken_MT > 0, taken_MT / penalty, taken_MT * penalty)
        return logits_MV.scatter(1, earlier_MT, taken_MT)

    def forbid(
        self, logits_MV: Tensor, tokens_MT: np.ndarray, example_M: np.ndarray, states: Sequence[PhraseState]
    ) -> None:
        """Set the logits of tokens that may not come next to minus infinity, in place."""
        length = tokens_MT.shape[1]
        in_prefix = [
            (row, token, logits_MV[row, token].clone())
            for row in (length < self._prefix_lengths_N[example_M]).nonzero()[0].tolist()
            for token in [self.requests[example_M[row]].prefix[length]]
        ]
        if self._suppressed:
            logits_MV[:, self._suppressed] = -torch.inf
        ends_too_early_M = length < self._minimums_N[example_M]
        forbidden = [(ends_too_early_M.nonzero()[0], np.full(int(ends_too_early_M.sum()), self.eos_id))]
        if self._no_repeat_ngram is not None:
            forbidden.append(_repeated_ngrams(tokens_MT, self._no_repeat_ngram))
        if self.have_phrases:
            forbidden += self._by_phrases(example_M, states, length)
        rows_X, tokens_X = (np.concatenate(parts) for parts in zip(*forbidden, strict=True))
        if len(rows_X):
            device = logits_MV.device
            logits_MV[torch.from_numpy(rows_X).to(device), torch.from_numpy(tokens_X).to(device)] = -torch.inf
        for row, token, logit in in_prefix:  # whatever else forbids it
            logits_MV[row] = -torch.inf
            logits_MV[row, token] = logit

    def _by_phrases(
        self, example_M: np.ndarray, states: Sequence[PhraseState], length: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        parts = []
        for row, (example, state) in enumerate(zip(example_M.tolist(), states, strict=True)):
            required, banned = self.requests[example].required, self.requests[example].banned
            if required is not None and not required.met_at_end(state.required):
                parts.append((np.array([row]), np.array([self.eos_id])))
            if banned is not None:
                tokens = banned.forbidden(state.banned)
                if length + 1 == self.requests[example].limit:
                    tokens = np.union1d(tokens, banned.cut_forbidden(state.banned))
                parts.append((np.full(len(tokens), row), tokens.astype(np.int64)))
                if banned.end_forbidden(state.banned):
                    parts.append((np.array([row]), np.array([self.eos_id])))
        return parts


def _repeated_ngrams(tokens_MT: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and the tokens that would complete an n-gram which the row contains already."""
    if tokens_MT.shape[1] < size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ngrams_MPn = sliding_window_view(tokens_MT, size, axis=1)
    ending_Mn = tokens_MT[:, tokens_MT.shape[1] - size + 1 :]
    rows_X, places_X = (ngrams_MPn[:, :, :-1] == ending_Mn[:, None]).all(-1).nonzero()
    return rows_X, ngrams_MPn[rows_X, places_X, -1]
