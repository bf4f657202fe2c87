"""A decoding session of a language model that takes several tokens at once and takes them back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer.models.decoder_only import DecoderOnly


class RewindableSteps:
    """A session of a language model over one prompt.

    It is asked about whole outputs, in any order; what an output has in common with the one before is not read again.

    Args:
        model: in evaluation mode.
        prompt: ids, one at least.
        device: where the model is.
    """

    def __init__(self, model: DecoderOnly, prompt: Sequence[int], device: torch.device) -> None:
        self._model, self._prompt, self._device = model, list(prompt), device
        self._cache = model.new_cache()
        self._read: list[int] = []

    @property
    def room(self) -> int:
        """Tokens of an output that the model can read behind the prompt; negative if the prompt alone is too long."""
        return self._model.config.max_length - len(self._prompt)

    def next_logits(self, output: Sequence[int], count: int) -> Tensor:
        """Logits (count, V) of the token behind each of the last ``count`` beginnings of an output.

        The last of these beginnings is the output itself, the first one is ``count - 1`` tokens shorter.
        """
        tokens = [*self._prompt, *output]
        kept = min(_num_common(tokens, self._read), len(tokens) - count)
        self._cache.truncate(kept)
        self._read = tokens[:kept]
        new_1L = torch.tensor([tokens[kept:]], device=self._device)
        hidden_1LD = self._model.hidden(new_1L, cache=self._cache).hidden_BLD
        self._read = tokens
        return self._model.output(hidden_1LD[0, -count:])  # type: ignore[no-any-return]


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common beginning."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
