"""Score a bundle on texts it has not seen."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from transformer.data.batches.buckets import BatchPlan
from transformer.data.batches.collate import TextBatch, collate_translation
from transformer.data.batches.documents import encode_documents
from transformer.data.text_data import scored_batches
from transformer.decoding.config import DecodingConfig
from transformer.inference.batching import length_batches
from transformer.inference.generator import Generator
from transformer.inference.mode import evaluation_mode
from transformer.inference.translator import Translator
from transformer.metrics.running import bits_per_byte, perplexity
from transformer.metrics.text import BleuTokenize, Score, all_scores, check_pairs
from transformer.nn.loss import cross_entropy


class Evaluation(NamedTuple):
    """Scores in the order of the report, and the translations."""

    scores: list[Score]
    outputs: list[str]


@torch.inference_mode()
def evaluate_translation(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    decoding: DecodingConfig | None = None,
    *,
    tags: Sequence[str | None] | None = None,
    bleu_tokenize: BleuTokenize = "13a",
    max_tokens_per_batch: int = 2048,
) -> Evaluation:
    """Translate and score; also the loss and perplexity of the references.

    References longer than the model's maximum length are cut for the loss, never for the scores.

    Args:
        translator: the model.
        sources, references: texts, line by line.
        decoding: the search; default: the bundle's.
        tags: of each source, for a model of several directions; see :meth:`Translator.encode`.
        bleu_tokenize: sacreBLEU's tokenizer.
        max_tokens_per_batch: a matter of speed and memory only.

    Raises:
        ValueError: if there are not as many references as sources, or none, or a tag is not one of training.
    """
    check_pairs(sources, references)  # there will be one output for each source
    outputs = translator.translate(sources, decoding, tags=tags, max_tokens_per_batch=max_tokens_per_batch)
    total, count = 0.0, 0
    bundle, model = translator.bundle, translator.model
    room = model.config.max_length - 1
    source_ids = [ids[:room] for ids in translator.encode(sources, tags)]
    target_ids = [ids[:room] for ids in bundle.target_tokenizer.encode_batch(list(references))]
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(source_ids, target_ids, strict=True)]
    tokenizer = bundle.target_tokenizer
    with evaluation_mode(model):
        for numbers in length_batches(lengths, max_tokens_per_batch):
            examples = [(number, source_ids[number], target_ids[number]) for number in numbers]
            batch = collate_translation(
                examples, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id
            )
            source_BS, source_mask_BS, target_BT, labels_BT, scored_BT = (
                tensor.to(translator.device) for tensor in batch[1:6]
            )
            memory_BSD = model.encode(source_BS, source_mask_BS).memory_BSD
            hidden_BTD = model.decode(target_BT, memory_BSD, source_mask_BS).hidden_BTD
            sums = cross_entropy(hidden_BTD, model.output.weight, labels_BT, scored_BT)
            total, count = total + float(sums.nll), count + int(sums.num_tokens)
    loss = total / count
    scores = all_scores(outputs, references, bleu_tokenize)
    scores += [
        Score("loss", loss, "nats per target token, no smoothing"),
        Score("perplexity", perplexity(loss), "exp(loss)"),
    ]
    return Evaluation(scores, outputs)


@torch.inference_mode()
def evaluate_language_model(
    generator: Generator, texts: Sequence[str], *, max_tokens_per_batch: int = 4096
) -> list[Score]:
    """Loss, perplexity and bits per byte over whole texts.

    They are one text, in windows of the model's maximum length side by side: every token but the first is scored once,
    and a token at the start of a window is predicted from the one before it only. A model that was trained on packed
    documents is scored on each document by itself.
    """
    bundle, model = generator.bundle, generator.model
    tokenizer, length, packing = bundle.target_tokenizer, model.config.max_length, bundle.config.packing
    documents = encode_documents(texts, tokenizer, mark_documents=bundle.config.mark_documents)
    rows = max(1, max_tokens_per_batch // length)
    examples, batches, _ = scored_batches(documents, tokenizer, length=length, rows=rows, packing=packing)
    total, count = 0.0, 0
    with evaluation_mode(model):
        for parts in batches:
            batch = _on(generator.device, examples[BatchPlan(0, parts)])
            hidden_BLD = model.hidden(batch.tokens_BL, segments_BL=batch.segments_BL).hidden_BLD
            sums = cross_entropy(hidden_BLD, model.output.weight, batch.labels_BL, batch.scored_BL)
            total, count = total + float(sums.nll), count + int(sums.num_tokens)
    how = f"documents in parts of {length} tokens" if packing else f"windows of {length} tokens side by side"
    return [
        Score("loss", total / count, f"nats per token, {how}"),
        Score("perplexity", perplexity(total / count), "exp(loss)"),
        Score("bits_per_byte", bits_per_byte(total, documents.num_bytes), f"UTF-8 bytes, {how}"),
    ]


def _on(device: torch.device, batch: TextBatch) -> TextBatch:
    index_B, tokens_BL, labels_BL, scored_BL, segments_BL = batch
    segments_BL = None if segments_BL is None else segments_BL.to(device)
    return TextBatch(index_B, tokens_BL.to(device), labels_BL.to(device), scored_BL.to(device), segments_BL)
