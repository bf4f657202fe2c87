"""Training an encoder-decoder to translate."""

import itertools
from collections.abc import Sequence

import torch.distributed

from transformer.data.batches.collate import TranslationBatch
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import GreedyConfig
from transformer.decoding.interface import Request
from transformer.decoding.lengths import translation_lengths
from transformer.decoding.search import search
from transformer.metrics.text import validation_scores
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import TranslationSteps
from transformer.nn.loss import LossSum
from transformer.training.config import TrainConfig
from transformer.training.objective import passes, token_loss
from transformer.training.task import Sample, Task

DEFAULT_GENERATED = 200


class TranslationTask(Task):
    """Teacher forcing with label smoothing and R-Drop; validation also translates and scores.

    Args:
        config: the run's settings.
        model: what to train.
        target_tokenizer: to turn ids into text.
        validation_pairs: source and target texts of the validation split, for scores and samples.
        corpus_sizes: how many of them, one after the other, belong to each corpus; by default they are one.
    """

    model: EncoderDecoder

    def __init__(
        self,
        config: TrainConfig,
        model: EncoderDecoder,
        target_tokenizer: Tokenizer,
        validation_pairs: list[tuple[str, str]],
        corpus_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(config, model)
        self.target_tokenizer, self.validation_pairs = target_tokenizer, validation_pairs
        wanted = config.validation.num_generated
        self._generated = first_of_each(
            [len(validation_pairs)] if corpus_sizes is None else corpus_sizes,
            DEFAULT_GENERATED if wanted is None else wanted,
        )
        self._outputs: dict[int, str] = {}

    def loss(self, batch: TranslationBatch) -> LossSum:
        read = passes(batch, self.config, training=self.training)
        source_segments_BS, target_segments_BT = read.source_segments_BS, read.target_segments_BT
        mask_BS = read.source_mask_BS if source_segments_BS is None else None  # segments also tell what is padding
        memory_BSD = self.model.encode(read.source_BS, mask_BS, segments_BS=source_segments_BS).memory_BSD
        decoded = self.model.decode(
            read.target_BT,
            memory_BSD,
            mask_BS,
            source_segments_BS=source_segments_BS,
            target_segments_BT=target_segments_BT,
        )
        return token_loss(
            decoded.hidden_BTD,
            self.model.output.weight,
            batch.labels_BT,
            batch.scored_BT,
            self.config,
            training=self.training,
        )

    def validation_step(self, batch: TranslationBatch, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        rows = {index: row for row, index in enumerate(batch.index_B.tolist()) if index in self._generated}
        self._outputs.update(dict.fromkeys(rows, ""))  # where that stays, the source is blank
        rows = {index: row for index, row in rows.items() if self.validation_pairs[index][0].strip()}
        if not rows:
            return
        wanted = list(rows.values())
        source_NS, mask_NS = batch.source_BS[wanted], batch.source_mask_BS[wanted]
        config = GreedyConfig(name="greedy")  # quick, and the same whatever the final search
        lengths = [
            translation_lengths(length, config, self.model.config.max_length) for length in mask_NS.sum(1).tolist()
        ]
        hypotheses = search(
            TranslationSteps(self.model, source_NS, mask_NS, self.target_tokenizer.bos_id),
            config,
            [Request(limit, minimum) for minimum, limit in lengths],
            eos_id=self.target_tokenizer.eos_id,
            suppressed=self.target_tokenizer.silent_ids,
        )
        texts = self.target_tokenizer.decode_batch([best.tokens for [best] in hypotheses])
        self._outputs.update(zip(rows, texts, strict=True))

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        outputs, self._outputs = self._outputs, {}
        if self.trainer.world_size > 1:
            gathered: list[dict[int, str]] = [{} for _ in range(self.trainer.world_size)]
            torch.distributed.all_gather_object(gathered, outputs)
            outputs = {index: text for part in gathered for index, text in part.items()}
        if not outputs:
            return
        indices = [index for index in self._generated if index in outputs]
        references = [self.validation_pairs[index][1] for index in indices]
        data = self.config.data
        assert not isinstance(data, TextCorpusConfig), "refused with the configuration"
        for score in validation_scores([outputs[index] for index in indices], references, data.bleu_tokenize):
            self.log_validation(score.name, score.value)
        self.samples = [
            Sample(source, outputs[index], reference)
            for index in indices[: self.config.validation.num_shown]
            for source, reference in [self.validation_pairs[index]]
        ]


def first_of_each(sizes: Sequence[int], number: int) -> dict[int, None]:
    """As many of the first pairs of each corpus, while they last: the first of each, the second of each, and so on.

    So a model of several directions is judged by all of them.

    Args:
        sizes: the pairs of each corpus, which stand one after the other.
        number: of pairs to choose in all; fewer where there are not so many.

    Returns:
        The places chosen, in order (an ordered set).
    """
    starts = itertools.accumulate(sizes, initial=0)
    places = [range(start, start + size) for start, size in zip(starts, sizes, strict=False)]
    rounds = itertools.zip_longest(*places)
    chosen = (place for one in rounds for place in one if place is not None)
    return dict.fromkeys(itertools.islice(chosen, number))
