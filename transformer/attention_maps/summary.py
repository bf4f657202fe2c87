"""Attention in numbers: how spread each head's weights are, and where they are greatest."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.attention_maps.maps import AttentionMap


class HeadWeights(NamedTuple):
    """The weights of one head, or the mean over the heads of its layer.

    Attributes:
        layer: from 1.
        head: from 1; None for the mean.
        weights_QK: as in :class:`AttentionMap`.
    """

    layer: int
    head: int | None
    weights_QK: Tensor

    @property
    def name(self) -> str:
        """In words."""
        return f"layer {self.layer}, " + ("mean" if self.head is None else f"head {self.head}")


class Entropy(NamedTuple):
    """How spread weights are, on average over the queries that may attend to more than one key.

    Attributes:
        nats: Shannon's entropy, ``-sum(w ln w)``; 0 if each query attends to a single key. NaN without such a query.
        share: of the logarithm of the number of keys that the query may attend to: 1 if it attends to all alike.
    """

    nats: float
    share: float


class Link(NamedTuple):
    """The key that a query attends to most; both are places from 0."""

    query: int
    key: int
    weight: float


def choose_heads(
    attention: AttentionMap, layers: Sequence[int] | None = None, heads: Sequence[int | None] | None = None
) -> list[HeadWeights]:
    """Heads to look at, layer by layer.

    Args:
        attention: all of them.
        layers: from 1; default: all.
        heads: from 1, None for the mean over all heads of a layer; default: the mean, and then all heads.

    Raises:
        ValueError: there is no such layer or head.
    """
    layers = range(1, attention.num_layers + 1) if layers is None else layers
    heads = [None, *range(1, attention.num_heads + 1)] if heads is None else heads
    numbers = [head for head in heads if head is not None]
    for what, chosen, most in (("layer", layers, attention.num_layers), ("head", numbers, attention.num_heads)):
        for number in chosen:
            if not 1 <= number <= most:
                raise ValueError(f"a {what} of {NAMES[attention.kind]} must be from 1 to {most}, but is {number}.")
    return [
        HeadWeights(layer, head, weights_HQK.mean(0) if head is None else weights_HQK[head - 1])
        for layer in layers
        for weights_HQK in [attention.weights_LHQK[layer - 1]]
        for head in heads
    ]


NAMES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


def entropy(weights_QK: Tensor, visible_QK: Tensor) -> Entropy:
    """How spread one head's weights are over the keys that its queries may attend to."""
    num_visible_Q = visible_QK.sum(-1)
    choice_Q = num_visible_Q > 1
    nats_N = torch.special.entr(weights_QK[choice_Q].double()).sum(-1)
    if len(nats_N) == 0:
        return Entropy(math.nan, math.nan)
    return Entropy(float(nats_N.mean()), float((nats_N / num_visible_Q[choice_Q].double().log()).mean()))


def strongest_links(weights_QK: Tensor, visible_QK: Tensor) -> list[Link]:
    """For each query that may attend to more than one key, the key with the greatest weight; in the queries' order."""
    most_Q, key_Q = weights_QK.max(-1)
    choice = (visible_QK.sum(-1) > 1).tolist()
    return [
        Link(query, key, weight)
        for query, (key, weight) in enumerate(zip(key_Q.tolist(), most_Q.tolist(), strict=True))
        if choice[query]
    ]
