"""Beam search with length-normalised scores and a stopping rule that never loses a better hypothesis."""

from collections.abc import Sequence
from typing import assert_never

import torch
from torch import Tensor

from transformer.decoding.config import BeamConfig
from transformer.decoding.interface import Hypothesis, StepModel


@torch.no_grad()
def beam_search(
    model: StepModel, config: BeamConfig, *, eos_id: int, limits: Sequence[int], num_best: int = 1
) -> list[list[Hypothesis]]:
    """The best hypotheses of each example, best first: finished ones before those that the limit cut.

    Each example starts with ``config.size`` places. At every step its places go to the most probable extensions; an
    extension by the end token is finished and gives its place up. So a beam of 1 is greedy search, and the result does
    not depend on ``num_best``. Scores are log probabilities divided by a penalty that grows with length (end token
    included), so no continuation of a live row can score above ``log p / penalty(limit)``: an example ends when its
    ``num_best`` best finished hypotheses reach that bound, or when no place is left.

    Args:
        model: the session.
        config: beam size and length normalisation.
        eos_id: the token that ends an output.
        limits: greatest number of tokens of each example, the end token included.
        num_best: hypotheses returned per example, at most ``config.size``.
    """
    if not 1 <= num_best <= config.size:
        raise ValueError(f"the number of best hypotheses must be from 1 to the beam size ({config.size}), "
                         f"but is {num_best}.")  # fmt: skip
    width = config.size
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    live = [example for example, limit in enumerate(limits) if limit > 0]
    for example, limit in enumerate(limits):
        if limit <= 0:
            finished[example].append(Hypothesis([], 0.0, 0.0, False))
    logits_NV = model.start()
    device = logits_NV.device
    rows_N = torch.tensor(live, device=device, dtype=torch.long)
    log_probs_NWV = logits_NV[rows_N].log_softmax(-1, dtype=torch.float32)[:, None]
    totals_NW = torch.zeros(len(live), 1, device=device)
    row_of_NW = rows_N[:, None]  # the model's row of each place
    tokens_NWT = torch.empty(len(live), 1, 0, dtype=torch.long, device=device)
    places_N = torch.full((len(live),), width, device=device)
    length = 0
    while live:
        length += 1
        totals_NW, parents_NW, chosen_NW = _best_extensions(totals_NW[:, :, None] + log_probs_NWV, width, places_N)
        tokens_NWT = torch.cat([tokens_NWT.gather(1, _spread(parents_NW, tokens_NWT)), chosen_NW[:, :, None]], dim=2)
        ended_NW = (chosen_NW == eos_id) & totals_NW.isfinite()
        for place, slot in ended_NW.nonzero().tolist():
            total = totals_NW[place, slot].item()
            score = total / _penalty(config, length)
            finished[live[place]].append(Hypothesis(tokens_NWT[place, slot, :-1].tolist(), total, score, True))
        places_N = places_N - ended_NW.sum(1)
        totals_NW = totals_NW.masked_fill(ended_NW, -torch.inf)
        keep = []
        for place, best_live in enumerate(totals_NW.amax(1).tolist()):
            example = live[place]
            if length == limits[example]:
                for slot in totals_NW[place].isfinite().nonzero()[:, 0].tolist():
                    total = totals_NW[place, slot].item()
                    score = total / _penalty(config, length)
                    finished[example].append(Hypothesis(tokens_NWT[place, slot].tolist(), total, score, False))
            elif best_live > -torch.inf and not _is_decided(
                finished[example], num_best, best_live / _penalty(config, limits[example])
            ):
                keep.append(place)
        if not keep:
            break
        kept = torch.tensor(keep, device=device)
        live = [live[place] for place in keep]
        totals_NW, tokens_NWT, places_N = totals_NW[kept], tokens_NWT[kept], places_N[kept]
        model_rows_M = row_of_NW[kept].gather(1, parents_NW[kept]).flatten()
        logits_MV = model.step(tokens_NWT[:, :, -1].flatten(), model_rows_M)
        log_probs_NWV = logits_MV.log_softmax(-1, dtype=torch.float32).view(len(live), width, -1)
        row_of_NW = torch.arange(len(live) * width, device=device).view(len(live), width)
    return [sorted(hypotheses, key=_rank)[:num_best] for hypotheses in finished]


def _best_extensions(totals_NWV: Tensor, width: int, places_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best ``places_N`` extensions of each example, in ``width`` slots; surplus slots have a total of -inf."""
    vocab_size = totals_NWV.shape[2]
    flat_NX = totals_NWV.flatten(1)
    totals_NW, flat_NW = flat_NX.topk(min(width, flat_NX.shape[1]), dim=1)
    missing = width - totals_NW.shape[1]
    if missing > 0:  # fewer extensions than places: a tiny vocabulary at the first step
        totals_NW = torch.nn.functional.pad(totals_NW, (0, missing), value=-torch.inf)
        flat_NW = torch.nn.functional.pad(flat_NW, (0, missing))
    surplus_NW = torch.arange(width, device=places_N.device)[None] >= places_N[:, None]
    return totals_NW.masked_fill(surplus_NW, -torch.inf), flat_NW // vocab_size, flat_NW % vocab_size


def _spread(parents_NW: Tensor, tokens_NWT: Tensor) -> Tensor:
    return parents_NW[:, :, None].expand(-1, -1, tokens_NWT.shape[2])


def _is_decided(finished: list[Hypothesis], num_best: int, bound: float) -> bool:
    scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)
    return len(scores) >= num_best and scores[num_best - 1] >= bound


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.finished, -hypothesis.score


def _penalty(config: BeamConfig, length: int) -> float:
    """What a log probability is divided by; Wu et al. 2016 (GNMT), equation 14, without coverage."""
    match config.normalization:
        case "gnmt":
            return float(((5 + length) / 6) ** config.length_penalty)
        case "average":
            return float(length**config.length_penalty)
        case _:
            assert_never(config.normalization)
