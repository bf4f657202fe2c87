"""Decoding sessions of the two models: start once, then one token per row and step, with cached keys and values."""

import torch
from torch import Tensor

from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.shortlisted import ShortlistedOutput


class TranslationSteps:
    """A session of an encoder-decoder over a batch of sources.

    Rows of the same source share its keys and values; a source that no row translates any more leaves the batch.

    Args:
        model: in evaluation mode.
        source_BS, source_mask_BS: source ids ending with the end token, and True for real ones.
        bos_id: the start token of targets.
        attending: whether :meth:`attention` will be asked for, which is slower.
        shortlisted: an output layer over some tokens only. Tokens are then numbered by its columns.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        source_BS: Tensor,
        source_mask_BS: Tensor,
        bos_id: int,
        *,
        attending: bool = False,
        shortlisted: ShortlistedOutput | None = None,
    ) -> None:
        self.model, self.bos_id = model, bos_id
        self.source_mask_BS, self.attending, self.shortlisted = source_mask_BS, attending, shortlisted
        # Without any padding the model takes its fast path.
        mask = None if bool(source_mask_BS.all()) else source_mask_BS
        self.memory_BSD, self.memory_mask_BS = model.encode(source_BS, mask).memory_BSD, mask
        self.source_of_row_M = torch.arange(len(source_BS))
        self.cache = model.new_cache()
        self._attention_MS: Tensor | None = None

    def start(self) -> Tensor:
        """Logits (B, V) of each target's first token."""
        return self._logits(torch.full((len(self.memory_BSD),), self.bos_id))

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        """Logits (M, V) after rows ``parents_M`` continued with ``tokens_M``."""
        if not _all_in_order(parents_M, len(self.source_of_row_M)):
            self.cache.select(parents_M)
            self.source_of_row_M = self.source_of_row_M[parents_M]
        return self._logits(tokens_M if self.shortlisted is None else self.shortlisted.tokens(tokens_M))

    def attention(self) -> Tensor:
        """Cross-attention (M, S) of the last call, averaged over the last layer's heads; infinite for padding."""
        assert self._attention_MS is not None, "the session was not made to attend"
        return self._attention_MS

    def _logits(self, tokens_M: Tensor) -> Tensor:
        decoded = self.model.decode(
            tokens_M[:, None].to(self.memory_BSD.device),
            self.memory_BSD,
            self.memory_mask_BS,
            cache=self.cache,
            backend="explicit" if self.attending else "fused",
        )
        weights_MHTS = decoded.cross_weights[-1]
        if weights_MHTS is not None:
            real_MS = self.source_mask_BS[self.source_of_row_M.to(self.source_mask_BS.device)]
            self._attention_MS = weights_MHTS[:, :, -1].mean(1).masked_fill(~real_MS, torch.inf)
        hidden_MD = decoded.hidden_BTD[:, -1]
        if self.shortlisted is not None:
            return self.shortlisted.logits(hidden_MD, self.source_of_row_M.to(hidden_MD.device))
        return self.model.output(hidden_MD)  # type: ignore[no-any-return]


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
        return self.model.next_logits(tokens_M[:, None].to(self.prompt_BL.device), cache=self.cache)


def _all_in_order(parents_M: Tensor, num_rows: int) -> bool:
    """Whether every row continues itself, as in most steps of a greedy search: nothing has to be moved then."""
    return len(parents_M) == num_rows and torch.equal(parents_M, torch.arange(num_rows))
