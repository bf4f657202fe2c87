"""Training a decoder as a language model."""

import torch

from transformer.data.batches.collate import TextBatch
from transformer.data.batches.documents import Documents
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import MbrConfig
from transformer.decoding.interface import Request
from transformer.decoding.lengths import continuation_lengths
from transformer.decoding.search import search
from transformer.metrics.running import bits_per_byte
from transformer.models.decoder_only import DecoderOnly
from transformer.models.stepping import ContinuationSteps
from transformer.nn.loss import LossSum
from transformer.training.config import TrainConfig
from transformer.training.objective import passes, token_loss
from transformer.training.task import Sample, Task

SAMPLE_TOKENS = 100
SHOWN_CHARACTERS = 150  # of a prompt


class LanguageModelTask(Task):
    """Next-token prediction; validation reports loss, perplexity and bits per byte over the whole split.

    Args:
        config: the run's settings.
        model: what to train.
        tokenizer: to turn ids into text.
        validation: the validation documents, for bits per byte and for the prompts of samples.
        num_scored: tokens of them that are predicted.
    """

    model: DecoderOnly

    def __init__(
        self,
        config: TrainConfig,
        model: DecoderOnly,
        tokenizer: Tokenizer,
        validation: Documents,
        num_scored: int,
    ) -> None:
        super().__init__(config, model)
        self.tokenizer, self.validation, self.num_scored = tokenizer, validation, num_scored
        self._validation_ids = [index for document in validation.ids for index in document]

    def loss(self, batch: TextBatch) -> LossSum:
        read = passes(batch, self.config, training=self.training)
        hidden_BLD = self.model.hidden(read.tokens_BL, segments_BL=read.segments_BL).hidden_BLD
        return token_loss(
            hidden_BLD,
            self.model.output.weight,
            batch.labels_BL,
            batch.scored_BL,
            self.config,
            training=self.training,
        )

    def report_loss(self, nll_per_token: float) -> None:
        super().report_loss(nll_per_token)
        nll = nll_per_token * self.num_scored
        self.log_validation("bits_per_byte", bits_per_byte(nll, self.validation.num_bytes))

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.samples = [self._sample(number) for number in range(self.config.validation.num_shown)]

    def _sample(self, number: int) -> Sample:
        """Continue a piece of validation text, from another place for each number."""
        ids, room = self._validation_ids, self.model.config.max_length
        prompt_length = max(1, min(room // 2, len(ids)))
        start = number * len(ids) // max(self.config.validation.num_shown, 1)
        prompt_1L = torch.tensor(ids[start : start + prompt_length], dtype=torch.long, device=self.device)[None]
        decoding, most = self.config.decoding, min(SAMPLE_TOKENS, room - prompt_1L.shape[1] + 1)
        assert not isinstance(decoding, MbrConfig), "refused with the configuration"
        minimum, limit = continuation_lengths(most, decoding)
        [[hypothesis]] = search(
            ContinuationSteps(self.model, prompt_1L, torch.ones_like(prompt_1L, dtype=torch.bool)),
            decoding,
            [Request(limit, minimum, line=number)],
            eos_id=self.tokenizer.eos_id,
            suppressed=self.tokenizer.silent_ids,
        )
        prompt = self.tokenizer.decode(prompt_1L[0].tolist())
        shown = prompt if len(prompt) <= SHOWN_CHARACTERS else f"… {prompt[-SHOWN_CHARACTERS:]}"
        return Sample(shown, self.tokenizer.decode(hypothesis.tokens), None)
