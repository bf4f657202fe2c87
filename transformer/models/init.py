"""Initial weights and parameter counts."""

import math

import torch
from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.nn.feedforward import FeedForward
from transformer.nn.multihead import CrossAttention, SelfAttention

DEFAULT_STD = 0.02


def initialize(model: nn.Module, config: EncoderDecoderConfig | DecoderOnlyConfig, num_residuals: int) -> None:
    """Fill the weights in place; biases become 0, norms keep gain 1 and bias 0.

    ``normal``: N(0, std^2) for linear layers and embeddings; projections that write into the residual stream are
    scaled by ``1 / sqrt(num_residuals)``, so that the stream's variance does not grow with depth (GPT-2).

    ``xavier``: Glorot uniform for linear layers, each part of a fused projection as if it stood alone; embeddings
    N(0, 1/d_model), so that scaled embeddings have unit variance (Vaswani et al. 2017 as widely implemented).

    With ``config.zero_outputs`` those projections are zero, so that with Pre-Norm every layer begins as the identity,
    and so is an output layer that is not tied: the first loss is the logarithm of the vocabulary size (Yang et al.
    2022).
    """
    std = DEFAULT_STD if config.init_std is None else config.init_std
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if config.initialization == "xavier":
                nn.init.xavier_uniform_(module.weight)
            else:
                nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std if config.initialization == "normal" else config.d_model**-0.5)
    for module in model.modules():
        if config.initialization == "xavier":
            for weight, rows in fused_parts(module):
                for part in torch.split(weight, list(rows)):
                    nn.init.xavier_uniform_(part)
        elif isinstance(module, SelfAttention | CrossAttention):
            nn.init.normal_(module.output.weight, std=std / math.sqrt(num_residuals))
        elif isinstance(module, FeedForward):
            nn.init.normal_(module.outer.weight, std=std / math.sqrt(num_residuals))
    if config.zero_outputs:
        for module in model.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                nn.init.zeros_(module.output.weight)
            elif isinstance(module, FeedForward):
                nn.init.zeros_(module.outer.weight)
        nn.init.zeros_(model.get_parameter("output.weight"))


def fused_parts(module: nn.Module) -> list[tuple[Tensor, tuple[int, ...]]]:
    """The weights of a module's own fused projections, each with the row counts of its parts."""
    if isinstance(module, SelfAttention):
        return [(module.query_key_value.weight, module.widths)]
    if isinstance(module, CrossAttention):
        return [(module.key_value.weight, (module.key_value.out_features // 2,) * 2)]
    if isinstance(module, FeedForward) and module.activation == "swiglu":
        return [(module.inner.weight, (module.inner.out_features // 2,) * 2)]
    return []


def count_parameters(model: nn.Module, *, embeddings: bool = True) -> int:
    """Number of parameters, tied ones once; without token and position embeddings on request.

    A tied output projection is an embedding and is not counted then either.
    """
    excluded = set()
    if not embeddings:
        excluded = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in excluded)
