"""Optimizers. A new one is a function, its settings and an arm in :func:`build_optimizer`."""

from typing import assert_never

import torch
from torch import nn
from torch.optim import Optimizer

from transformer.training.optimizer_config import AdamWConfig, OptimizerConfig


def build_optimizer(config: OptimizerConfig, model: nn.Module, *, fused: bool) -> Optimizer:
    """The configured optimizer over all parameters of a model, each once however often it is tied.

    Args:
        config: the optimizer.
        model: whose parameters to train.
        fused: use the fused kernel; not together with float16 gradient scaling, where Lightning clips by hand.
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
