"""Beam search with length-normalised scores and a stopping rule that never loses a better hypothesis."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.allocation import Extensions, best_of_each, diverse_groups, share_by_progress
from transformer.decoding.candidates import best_columns, check_numbers, log_normalizers
from transformer.decoding.config import BeamConfig
from transformer.decoding.endings import Endings
from transformer.decoding.interface import Hypothesis, StepModel
from transformer.decoding.places import in_place_order
from transformer.decoding.rules import PhraseState, Rules


@dataclass
class _Rows:
    """The live beginnings M of all examples, T tokens long.

    ``rank_M`` is a row's rank among those of its example, ``total_M`` what they are ranked by, ``own_MT`` the model's
    own log probabilities of their tokens; the last two differ with a repetition penalty.
    """

    example_M: np.ndarray
    group_M: np.ndarray
    rank_M: np.ndarray
    total_M: np.ndarray
    tokens_MT: np.ndarray
    own_MT: np.ndarray
    states: list[PhraseState]
    coverage_MS: Tensor | None = None

    def extended(self, extensions: Extensions, own_X: np.ndarray, order: np.ndarray, rules: Rules) -> "_Rows":
        """New rows, each of which continues one of these by a token; extensions are ranked, rows stand in ``order``."""
        chosen, parents = extensions.take(order), extensions.parent_X[order]
        examples, states = self.example_M[parents], self.states
        if rules.have_phrases:
            steps = zip(examples.tolist(), parents.tolist(), chosen.token_X.tolist(), strict=True)
            states = [rules.advance(example, self.states[parent], token) for example, parent, token in steps]
        return _Rows(
            example_M=examples,
            group_M=self.group_M[parents],
            rank_M=order,
            total_M=chosen.total_X,
            tokens_MT=np.concatenate([self.tokens_MT[parents], chosen.token_X[:, None]], axis=1),
            own_MT=np.concatenate([self.own_MT[parents], own_X[order, None]], axis=1),
            states=states,
            coverage_MS=None if self.coverage_MS is None else self.coverage_MS[torch.from_numpy(parents)],
        )


@torch.no_grad()
def beam_search(model: StepModel, config: BeamConfig, rules: Rules, *, num_best: int = 1) -> list[list[Hypothesis]]:
    """The best hypotheses of each example, best first: finished ones before those that the limit cut.

    Each example starts with ``config.size`` places. At every step its places go to the most probable extensions; an
    extension by the end token is finished and gives its place up (with a patience above 1 only after so many endings;
    Kasai et al. 2022). So a beam of 1 is greedy search, and the result does not depend on ``num_best``.

    Scores are log probabilities divided by a penalty that grows with length (end token included), plus a coverage
    penalty that is never positive (Wu et al. 2016, equation 14). So no continuation of a row can score above
    ``log p / penalty(limit)``: an example ends when that brings none of its rows among the ``num_best`` best finished
    hypotheses any more, or when no place is left. Single rows are not dropped, however hopeless they are: what got
    their places in their stead could end, and so take a place from better rows.

    Args:
        model: the session; one that attends (:class:`AttendingStepModel`) if there is a coverage penalty.
        config: the search.
        rules: lengths and what else outputs must obey.
        num_best: hypotheses returned per example, at most ``config.size``.
    """
    if not 1 <= num_best <= config.size:
        raise ValueError(f"the number of best hypotheses must be from 1 to the beam size ({config.size}), "
                         f"but is {num_best}.")  # fmt: skip
    constrained = any(request.required is not None for request in rules.requests)
    if constrained and (config.size == 1 or config.groups > 1):
        raise ValueError("required phrases need a beam of 2 or more, and exclude diverse groups.")
    endings = Endings(config, rules.requests, num_best)
    live = [example for example, request in enumerate(rules.requests) if request.limit > 0]
    logits_MV = model.start()
    rows = _start(config, rules, live)
    model_row_M = rows.example_M
    if not np.array_equal(model_row_M, np.arange(len(logits_MV))):
        logits_MV = logits_MV[torch.from_numpy(model_row_M).to(logits_MV.device)]
    length = 0
    while len(rows.example_M):
        length += 1
        if config.coverage_penalty > 0:
            attention_MS = model.attention().float().cpu()  # type: ignore[attr-defined]
            if rows.coverage_MS is None:
                rows.coverage_MS = attention_MS[torch.from_numpy(model_row_M)]
            else:
                rows.coverage_MS += attention_MS
        extensions, own_X = _extensions(logits_MV, rows, rules, min(config.size, logits_MV.shape[1]))
        chosen_X = _allocate(extensions, rows, config, rules, endings, length)
        extensions, own_X = extensions.take(chosen_X), own_X[chosen_X]
        parents_X, tokens_X = extensions.parent_X, extensions.token_X
        ended_X = tokens_X == rules.eos_id
        limits_X = endings.limits_N[rows.example_M[parents_X]]
        for place in (ended_X | (limits_X == length)).nonzero()[0].tolist():
            parent, finished = int(parents_X[place]), bool(ended_X[place])
            endings.add(
                int(rows.example_M[parent]),
                int(rows.group_M[parent]),
                [*rows.tokens_MT[parent].tolist(), int(tokens_X[place])],
                [*rows.own_MT[parent].tolist(), float(own_X[place])],
                total=float(extensions.total_X[place]),
                finished=finished,
                coverage=None if rows.coverage_MS is None else rows.coverage_MS[parent],
            )
        _rescue(rows, parents_X, endings)
        going_on_X = (~ended_X & (limits_X > length)).nonzero()[0]
        may_win_X = endings.may_win(rows.example_M[parents_X[going_on_X]], extensions.total_X[going_on_X])
        going_on_X = going_on_X[may_win_X]
        if len(going_on_X) == 0:
            break
        model_parents_X = model_row_M[parents_X] if length == 1 else parents_X
        going_on_X = going_on_X[in_place_order(model_parents_X[going_on_X])]
        rows = rows.extended(extensions, own_X, going_on_X, rules)
        parents_M = torch.from_numpy(model_parents_X[going_on_X])
        logits_MV = model.step(torch.from_numpy(tokens_X[going_on_X]), parents_M)
    return endings.best()


def _start(config: BeamConfig, rules: Rules, live: list[int]) -> _Rows:
    """One row without tokens for each group of each live example."""
    example_M = np.repeat(np.array(live, dtype=np.int64), config.groups)
    group_M = np.tile(np.arange(config.groups), len(live))
    empty = np.empty((len(example_M), 0))
    states = rules.start(example_M.tolist())
    return _Rows(example_M, group_M, group_M, np.zeros(len(example_M)), empty.astype(np.int64), empty, states)


def _extensions(logits_MV: Tensor, rows: _Rows, rules: Rules, count: int) -> tuple[Extensions, np.ndarray]:
    """The best ``count`` extensions of each row, and the model's own log probabilities of their tokens."""
    normalizers_M = log_normalizers(logits_MV)
    check_numbers(normalizers_M.cpu().numpy())
    ranked_MV, ranked_normalizers_M = logits_MV, normalizers_M
    if rules.change_scores:
        ranked_MV = rules.penalize(logits_MV, rows.tokens_MT)
        ranked_normalizers_M = log_normalizers(ranked_MV)
    rules.forbid(ranked_MV, rows.tokens_MT, rows.example_M, rows.states)
    columns_MK = best_columns(ranked_MV, count)
    parent_X = np.repeat(np.arange(len(columns_MK)), count)
    tokens_X = columns_MK.flatten().cpu().numpy()
    forced = _forced(ranked_MV, rows, rules)
    if forced:
        pairs_2X = np.concatenate([np.stack([parent_X, tokens_X]), np.array(forced).T], axis=1)
        parent_X, tokens_X = np.unique(pairs_2X, axis=1)
    device = logits_MV.device
    at = torch.from_numpy(parent_X).to(device), torch.from_numpy(tokens_X).to(device)
    gains_X = (ranked_MV[at].to(normalizers_M.dtype) - ranked_normalizers_M[at[0]]).cpu().numpy().astype(np.float64)
    own_X = gains_X
    if rules.change_scores:
        own_X = (logits_MV[at].to(normalizers_M.dtype) - normalizers_M[at[0]]).cpu().numpy().astype(np.float64)
    possible_X = np.isfinite(gains_X).nonzero()[0]
    extensions = Extensions(
        rows.example_M[parent_X], parent_X, rows.rank_M[parent_X], tokens_X, rows.total_M[parent_X] + gains_X
    )
    return extensions.take(possible_X), own_X[possible_X]


def _forced(ranked_MV: Tensor, rows: _Rows, rules: Rules) -> list[tuple[int, int]]:
    """Rows and the tokens that bring them nearer to their required phrases: the most probable one of each group."""
    if not rules.have_phrases:
        return []
    pairs = []
    for row, group in rules.forced(rows.example_M, rows.states, rows.tokens_MT.shape[1]):
        logits_X = ranked_MV[row, torch.tensor(group, device=ranked_MV.device)]
        pairs.append((row, int(group[int(logits_X.argmax())])))
    return pairs


def _allocate(
    extensions: Extensions, rows: _Rows, config: BeamConfig, rules: Rules, endings: Endings, length: int
) -> np.ndarray:
    """Which extensions get places, an example's best first."""
    places_NG = endings.places()
    if config.groups > 1:
        return diverse_groups(extensions, rows.group_M[extensions.parent_X], list(places_NG.T), config.diversity)
    required_N = [request.required for request in rules.requests]
    shared = {example for example in set(rows.example_M.tolist()) if required_N[example] is not None}
    if not shared:
        return best_of_each(extensions, places_NG[:, 0])
    free_X = (~np.isin(extensions.owner_X, list(shared))).nonzero()[0]
    chosen = [free_X[best_of_each(extensions.take(free_X), places_NG[:, 0])]]
    for example in sorted(shared):
        own_X = (extensions.owner_X == example).nonzero()[0]
        # Of equal totals the first one wins.
        own_X = own_X[np.lexsort((extensions.token_X[own_X], extensions.rank_X[own_X]))]
        own = extensions.take(own_X)
        steps = zip(own.parent_X.tolist(), own.token_X.tolist(), strict=True)
        prospects = [rules.prospect(example, rows.states[parent], token) for parent, token in steps]
        chosen_Y = share_by_progress(
            own.total_X.tolist(),
            [prospect.progress for prospect in prospects],
            [length + prospect.need <= rules.requests[example].limit for prospect in prospects],
            int(places_NG[example, 0]),
        )
        chosen.append(own_X[chosen_Y])
    return np.concatenate(chosen)


def _rescue(rows: _Rows, parents_X: np.ndarray, endings: Endings) -> None:
    """Where every extension is forbidden and nothing has ended, the rows themselves are the outputs, unfinished."""
    for example in np.setdiff1d(rows.example_M, rows.example_M[parents_X]).tolist():
        if not endings.hypotheses[example]:
            for row in (rows.example_M == example).nonzero()[0].tolist():
                tokens, own = rows.tokens_MT[row].tolist(), rows.own_MT[row].tolist()
                total = float(rows.total_M[row])
                endings.add(example, 0, tokens, own, total=total, finished=False, coverage=None)
