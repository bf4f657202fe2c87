"""What is asked of every search that is compared, and which of our models another library can hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer.data.batches.collate import pad
from transformer.decoding.lengths import EXTRA_TOKENS, TOKENS_PER_SOURCE_TOKEN
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.config import StackConfig
from transformer.nn.positions import LearnedPosition, PositionEncoding, SinusoidalPosition


class Forced(NamedTuple):
    """Sources and their targets as our model reads them, and its logits (B, T, V) for the token after each position."""

    source_BS: Tensor
    source_mask_BS: Tensor
    target_BT: Tensor
    target_mask_BT: Tensor
    logits_BTV: Tensor


class Task(NamedTuple):
    """A search of translations, the same for all: scores are log probabilities divided by the number of tokens.

    Attributes:
        beam: beginnings kept; 1 is greedy search.
        batch: sentences searched at once.
        max_tokens: of an output, the end token included; None: 20 and 2 for each source token, which only we can say
            of each source: the peers get the limit of the longest in the batch or call.
        min_tokens: of an output, the end token not included.
    """

    beam: int
    batch: int
    max_tokens: int | None
    min_tokens: int = 0

    def limit(self, sources: Sequence[Sequence[int]]) -> int:
        """Tokens of an output at most, for the longest of some sources."""
        if self.max_tokens is not None:
            return self.max_tokens
        return EXTRA_TOKENS + TOKENS_PER_SOURCE_TOKEN * max(map(len, sources))


Translate = Callable[[Sequence[Sequence[int]], Task], list[list[int]]]
"""From source ids with their end tokens, sorted by length, to target ids without begin and end, in the same order."""

Continue = Callable[[Sequence[Sequence[int]], int], list[list[int]]]
"""From prompts of equal lengths to as many new tokens each as said."""

LAYERS: Mapping[str, tuple[Any, ...]] = {
    "norm": ("layer_norm",),
    "norm_position": ("pre",),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "bias": (True,),
    "qk_norm": (False,),
    "position": ("sinusoidal", "learned"),
}
"""Settings of the layers and their input that all peers have too."""


def check_settings(config: StackConfig, permitted: Mapping[str, tuple[Any, ...]], peer: str) -> None:
    """Refuse a model that the other library has no equal of.

    Raises:
        ValueError: a setting is none of the permitted ones, or there are fewer key and value heads than heads.
    """
    for name, values in permitted.items():
        if (value := getattr(config, name)) not in values:
            wanted = " or ".join(map(str, values))
            raise ValueError(f"`{name}` must be {wanted} for a comparison with {peer}, but is {value}.")
    if config.kv_heads != config.num_heads:
        raise ValueError(
            f"`num_kv_heads` must be `num_heads` ({config.num_heads}) for a comparison with {peer}, but is "
            f"{config.kv_heads}."
        )


def position_table(position: PositionEncoding) -> Tensor:
    """The vector (L, D) that is added at each position."""
    match position:
        case SinusoidalPosition():
            return position.table_LD
        case LearnedPosition():
            return position.embedding.weight.detach()
        case _:
            raise AssertionError(f"{type(position).__name__} has no table")


def batches(sources: Sequence[Sequence[int]], size: int) -> list[Sequence[Sequence[int]]]:
    """Runs of ``size`` sources in their order."""
    return [sources[start : start + size] for start in range(0, len(sources), size)]


@torch.inference_mode()
def forced(model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, pad_id: int,
           bos_id: int) -> Forced:  # fmt: skip
    """What our model makes of targets that are given (teacher forcing).

    Args:
        model: in evaluation mode.
        sources: with end tokens.
        targets: without begin and end.
        pad_id, bos_id: of padding, and of the start token of targets.
    """
    source_BS, source_mask_BS = pad(sources, pad_id)
    target_BT, target_mask_BT = pad([[bos_id, *target] for target in targets], pad_id)
    logits_BTV = model(source_BS, target_BT, source_mask_BS)
    return Forced(source_BS, source_mask_BS, target_BT, target_mask_BT, logits_BTV)
