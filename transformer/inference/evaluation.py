"""Score a bundle on texts it has not seen."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from transformer.data.batching import TranslationBatch, collate_translation, pad
from transformer.data.datamodule import Windows, encode_documents
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
    bleu_tokenize: BleuTokenize = "13a",
    max_tokens_per_batch: int = 2048,
) -> Evaluation:
    """Translate and score; also the loss and perplexity of the references.

    References longer than the model's maximum length are cut for the loss, never for the scores.

    Raises:
        ValueError: if there are not as many references as sources, or none.
    """
    check_pairs(sources, references)  # there will be one output for each source
    outputs = translator.translate(sources, decoding, max_tokens_per_batch=max_tokens_per_batch)
    total, count = 0.0, 0
    bundle, model = translator.bundle, translator.model
    room = model.config.max_length - 1
    source_ids = [ids[:room] for ids in bundle.source_tokenizer.encode_batch(list(sources))]
    target_ids = [ids[:room] for ids in bundle.target_tokenizer.encode_batch(list(references))]
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(source_ids, target_ids, strict=True)]
    tokenizer = bundle.target_tokenizer
    with evaluation_mode(model):
        for numbers in length_batches(lengths, max_tokens_per_batch):
            examples = [(number, source_ids[number], target_ids[number]) for number in numbers]
            batch = collate_translation(
                examples, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id
            )
            batch = TranslationBatch(*(tensor.to(translator.device) for tensor in batch))
            memory_BSD = model.encode(batch.source_BS, batch.source_mask_BS).memory_BSD
            hidden_BTD = model.decode(batch.target_BT, memory_BSD, batch.source_mask_BS).hidden_BTD
            sums = cross_entropy(hidden_BTD, model.output.weight, batch.labels_BT, batch.scored_BT)
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
    """Loss, perplexity and bits per byte over whole texts, in windows of the model's maximum length side by side.

    Every token but the first is scored once; a token at the start of a window is predicted from the one before it only.
    """
    bundle, model = generator.bundle, generator.model
    tokenizer, length = bundle.target_tokenizer, model.config.max_length
    stream = encode_documents(texts, tokenizer, mark_documents=bundle.config.mark_documents)
    if len(stream.ids) < 2:
        raise ValueError(f"there must be at least 2 tokens to score, but there are {len(stream.ids)}.")
    windows = Windows(stream.ids, length)
    starts = list(range(0, len(stream.ids) - 1, length))
    rows = max(1, max_tokens_per_batch // length)
    total, count = 0.0, 0
    with evaluation_mode(model):
        for place in range(0, len(starts), rows):
            examples = [windows[start][1] for start in starts[place : place + rows]]
            tokens_BL, _ = pad([ids[:-1] for ids in examples], tokenizer.pad_id)
            labels_BL, scored_BL = pad([ids[1:] for ids in examples], tokenizer.pad_id)
            tokens_BL, labels_BL, scored_BL = (t.to(generator.device) for t in (tokens_BL, labels_BL, scored_BL))
            hidden_BLD = model.hidden(tokens_BL).hidden_BLD
            sums = cross_entropy(hidden_BLD, model.output.weight, labels_BL, scored_BL)
            total, count = total + float(sums.nll), count + int(sums.num_tokens)
    windows_note = f"windows of {length} tokens side by side"
    return [
        Score("loss", total / count, f"nats per token, {windows_note}"),
        Score("perplexity", perplexity(total / count), "exp(loss)"),
        Score("bits_per_byte", bits_per_byte(total, stream.num_bytes), f"UTF-8 bytes, {windows_note}"),
    ]
