"""Greedy search: the most probable token at every step."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer.decoding.interface import Hypothesis, StepModel

Chooser = Callable[[Tensor, Sequence[int]], Tensor]


@torch.no_grad()
def greedy_search(model: StepModel, *, eos_id: int, limits: Sequence[int]) -> list[Hypothesis]:
    """One hypothesis for each example, of at most ``limits[i]`` tokens; the end token needs one of them too."""
    return step_by_step(model, lambda logits_MV, _: logits_MV.argmax(-1), eos_id=eos_id, limits=limits)


@torch.no_grad()
def step_by_step(model: StepModel, choose: Chooser, *, eos_id: int, limits: Sequence[int]) -> list[Hypothesis]:
    """Extend each example by one chosen token at a time; finished examples leave the batch.

    Args:
        model: the session.
        choose: from logits (M, V) and the examples' numbers to the next tokens (M).
        eos_id: the token that ends an output.
        limits: greatest number of tokens of each example, the end token included.
    """
    tokens: list[list[int]] = [[] for _ in limits]
    log_probabilities = [0.0] * len(limits)
    finished = [False] * len(limits)
    logits_MV = model.start()
    live = list(range(len(limits)))  # the example of each row
    while True:
        chosen_M = choose(logits_MV, live)
        gains = logits_MV.log_softmax(-1, dtype=torch.float32).gather(1, chosen_M[:, None])[:, 0].tolist()
        keep = []
        for row, (example, token) in enumerate(zip(live, chosen_M.tolist(), strict=True)):
            if len(tokens[example]) >= limits[example]:
                continue  # a limit of zero
            log_probabilities[example] += gains[row]
            if token == eos_id:
                finished[example] = True
                continue
            tokens[example].append(token)
            if len(tokens[example]) < limits[example]:
                keep.append(row)
        if not keep:
            break
        live = [live[row] for row in keep]
        parents_M = torch.tensor(keep, device=logits_MV.device)
        logits_MV = model.step(chosen_M[parents_M], parents_M)
    return [
        Hypothesis(tokens[example], log_probabilities[example], log_probabilities[example], finished[example])
        for example in range(len(limits))
    ]
