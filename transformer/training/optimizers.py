"""Optimizers. A new one is a function, its settings and an arm in :func:`build_optimizer`."""

from typing import Any, NamedTuple, assert_never

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer.models.init import fused_parts
from transformer.training.muon import Muon
from transformer.training.optimizer_config import AdamWConfig, MuonConfig, OptimizerConfig


def build_optimizer(config: OptimizerConfig, model: nn.Module, *, fused: bool) -> Optimizer:
    """The configured optimizer over all parameters of a model, each once however often it is tied.

    Args:
        config: the optimizer.
        model: whose parameters to train.
        fused: use the fused kernel of AdamW.
    """
    match config:
        case AdamWConfig():
            return torch.optim.AdamW(
                decay_groups(model, config.weight_decay),
                lr=config.learning_rate,
                betas=config.betas,
                eps=config.eps,
                fused=fused,
            )
        case MuonConfig():
            matrices, embeddings, outputs, others = muon_groups(model)
            rates = (config.embedding_learning_rate, config.output_learning_rate, config.other_learning_rate)
            groups: list[dict[str, Any]] = [
                {"params": group, "lr": rate, "weight_decay": 0.0}
                for group, rate in zip((embeddings, outputs, others), rates, strict=True)
                if group
            ]
            return Muon(
                matrices,
                groups,
                learning_rate=config.learning_rate,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
                betas=config.betas,
                eps=config.eps,
                fused=fused,
            )
        case _:
            assert_never(config)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two parameter groups: matrices of linear layers with weight decay; embeddings, biases and gains without."""
    embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for parameter in model.parameters():
        (kept if parameter.dim() < 2 or id(parameter) in embeddings else decayed).append(parameter)
    groups: list[dict[str, object]] = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class MuonGroups(NamedTuple):
    """All parameters of a model, each in one place: matrices with their parts' rows, and what AdamW trains."""

    matrices: list[tuple[Tensor, tuple[int, ...]]]
    embeddings: list[nn.Parameter]
    outputs: list[nn.Parameter]
    others: list[nn.Parameter]


def muon_groups(model: nn.Module) -> MuonGroups:
    """Linear layers are matrices, but for the output layer, whose rows are tokens as those of an embedding are."""
    embeddings = {id(p): p for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    output = model.get_parameter("output.weight")
    outputs = [] if id(output) in embeddings else [output]
    placed = embeddings.keys() | {id(output)}
    parts = {id(weight): rows for module in model.modules() for weight, rows in fused_parts(module)}
    others: list[nn.Parameter] = []
    matrices: list[tuple[Tensor, tuple[int, ...]]] = []
    for parameter in model.parameters():
        if id(parameter) in placed:
            continue
        if parameter.dim() == 2:
            matrices.append((parameter, parts.get(id(parameter), (parameter.shape[0],))))
        else:
            others.append(parameter)
    return MuonGroups(matrices, list(embeddings.values()), outputs, others)
