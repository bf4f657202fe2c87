"""Decoding sessions of the two models: start once, then one token per row and step, with cached keys and values."""

import torch
from torch import Tensor

from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

EXTRA_TOKENS, TOKENS_PER_SOURCE_TOKEN = 20, 2


def output_limits(source_mask_BS: Tensor, max_length: int) -> list[int]:
    """Greatest output length, end token included, of each source: it depends on that source alone, not on its batch."""
    lengths = source_mask_BS.sum(1).tolist()
    return [min(EXTRA_TOKENS + TOKENS_PER_SOURCE_TOKEN * length, max_length) for length in lengths]


class TranslationSteps:
    """A session of an encoder-decoder over a batch of sources.

    Args:
        model: in evaluation mode.
        source_BS, source_mask_BS: source ids ending with the end token, and True for real ones.
        bos_id: the start token of targets.
    """

    def __init__(self, model: EncoderDecoder, source_BS: Tensor, source_mask_BS: Tensor, bos_id: int) -> None:
        self.model, self.bos_id = model, bos_id
        self.mask_MS = source_mask_BS
        self.memory_BSD = model.encode(source_BS, source_mask_BS).memory_BSD
        self.cache = model.new_cache()

    def start(self) -> Tensor:
        """Logits (B, V) of each target's first token."""
        batch = self.memory_BSD.shape[0]
        return self._logits(torch.full((batch,), self.bos_id, device=self.memory_BSD.device))

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        """Logits (M, V) after rows ``parents_M`` continued with ``tokens_M``."""
        if not _all_in_order(parents_M, len(self.mask_MS)):
            self.cache.select(parents_M)
            self.mask_MS = self.mask_MS[parents_M]  # the memory itself is projected once, at the start
        return self._logits(tokens_M)

    def _logits(self, tokens_M: Tensor) -> Tensor:
        decoded = self.model.decode(tokens_M[:, None], self.memory_BSD, self.mask_MS, cache=self.cache)
        return self.model.output(decoded.hidden_BTD[:, -1])  # type: ignore[no-any-return]


class ContinuationSteps:
    """A session of a language model over a batch of prompts.

    Args:
        model: in evaluation mode.
        prompt_BL, prompt_mask_BL: prompt ids, padded on the left, and True for real ones.
    """

    def __init__(self, model: DecoderOnly, prompt_BL: Tensor, prompt_mask_BL: Tensor) -> None:
        self.model, self.prompt_BL, self.prompt_mask_BL = model, prompt_BL, prompt_mask_BL
        self.num_rows = len(prompt_BL)
        self.cache = model.new_cache()

    def start(self) -> Tensor:
        """Logits (B, V) of each continuation's first token."""
        # Without any padding the model takes its fast path.
        mask = None if bool(self.prompt_mask_BL.all()) else self.prompt_mask_BL
        return self.model.next_logits(self.prompt_BL, mask, cache=self.cache)

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        """Logits (M, V) after rows ``parents_M`` continued with ``tokens_M``."""
        if not _all_in_order(parents_M, self.num_rows):
            self.cache.select(parents_M)
        self.num_rows = len(parents_M)
        return self.model.next_logits(tokens_M[:, None], cache=self.cache)


def _all_in_order(parents_M: Tensor, num_rows: int) -> bool:
    """Whether every row continues itself, as in most steps of a greedy search: nothing has to be copied then."""
    return len(parents_M) == num_rows and torch.equal(parents_M, torch.arange(num_rows, device=parents_M.device))
