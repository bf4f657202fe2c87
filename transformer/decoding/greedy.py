"""Greedy search: the most probable token at every step."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.candidates import check_numbers, log_normalizers
from transformer.decoding.interface import Hypothesis, StepModel
from transformer.decoding.places import in_place_order
from transformer.decoding.rules import Rules

Chooser = Callable[[Tensor, Sequence[int]], Tensor]


def greedy_search(model: StepModel, rules: Rules) -> list[Hypothesis]:
    """One hypothesis for each example."""
    return step_by_step(model, lambda logits_MV, _: logits_MV.argmax(-1), rules)


@torch.no_grad()
def step_by_step(model: StepModel, choose: Chooser, rules: Rules, *, copies: int = 1) -> list[Hypothesis]:
    """Extend each output by one chosen token at a time; finished ones leave the batch.

    Args:
        model: the session.
        choose: from logits (M, V), with minus infinity for what is forbidden, and the outputs' numbers to the next
            tokens (M).
        rules: lengths and what else outputs must obey. Required phrases need a beam.
        copies: outputs of each example, independent of each other: output ``copies * n + c`` belongs to example n.
    """
    if any(request.required is not None for request in rules.requests):
        raise ValueError("required phrases need a beam of 2 or more; greedy search and sampling cannot see to them.")
    limits = [request.limit for request in rules.requests for _ in range(copies)]
    outputs: list[list[int]] = [[] for _ in limits]
    gains: list[list[float]] = [[] for _ in limits]
    finished = [False] * len(limits)
    logits_MV = model.start()
    live = [output for output, limit in enumerate(limits) if limit > 0]
    rows_M = torch.tensor(live, dtype=torch.long) // copies
    if live and (copies > 1 or len(live) < len(limits)):
        logits_MV = logits_MV[rows_M.to(logits_MV.device)]
    states = rules.start([output // copies for output in live])
    tokens_MT = np.empty((len(live), 0), dtype=np.int64)
    while live:
        normalizers_M = log_normalizers(logits_MV)
        check_numbers(normalizers_M.cpu().numpy())
        ranked_MV = rules.penalize(logits_MV, tokens_MT) if rules.change_scores else logits_MV
        rules.forbid(ranked_MV, tokens_MT, np.array(live) // copies, states)
        possible_M = ranked_MV.amax(-1).isfinite().cpu()
        chosen_M = choose(ranked_MV, live).cpu()
        taken_M = chosen_M.to(logits_MV.device)[:, None]
        gains_M = logits_MV.gather(1, taken_M)[:, 0].to(normalizers_M.dtype) - normalizers_M
        keep = []
        for row, (output, token, gain) in enumerate(zip(live, chosen_M.tolist(), gains_M.tolist(), strict=True)):
            if not possible_M[row]:
                continue  # everything is forbidden: an unfinished output
            gains[output].append(gain)
            if token == rules.eos_id:
                finished[output] = True
                continue
            outputs[output].append(token)
            if rules.have_phrases:
                states[row] = rules.advance(output // copies, states[row], token)
            if len(outputs[output]) < limits[output]:
                keep.append(row)
        if not keep:
            break
        keep = np.array(keep)[in_place_order(np.array(keep))].tolist()
        parents_M = torch.tensor(keep)
        tokens_MT = np.concatenate([tokens_MT, chosen_M.numpy()[:, None]], axis=1)[keep]
        live, states = [live[row] for row in keep], [states[row] for row in keep]
        logits_MV = model.step(chosen_M[parents_M], rows_M[parents_M] if tokens_MT.shape[1] == 1 else parents_M)
    return [
        Hypothesis(tokens, sum(gains[output]), sum(gains[output]), finished[output], gains[output])
        for output, tokens in enumerate(outputs)
    ]
