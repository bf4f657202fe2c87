"""Score a bundle on texts it has not seen."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from transformer.data.batches.buckets import BatchPlan
from transformer.data.batches.collate import TextBatch
from transformer.data.batches.documents import encode_documents
from transformer.data.text_data import scored_batches
from transformer.decoding.config import DecodingConfig
from transformer.inference.batching import length_batches
from transformer.inference.forced import forced_log_probabilities
from transformer.inference.generator import Generator
from transformer.inference.mode import evaluation_mode
from transformer.inference.strided import strided_batches
from transformer.inference.translator import Translator
from transformer.metrics.running import bits_per_byte, bits_per_character, perplexity
from transformer.metrics.text import BleuTokenize, Score, all_scores, check_references
from transformer.nn.loss import cross_entropy

log = logging.getLogger(__name__)


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
    more_references: Sequence[Sequence[str]] = (),
    bleu_tokenize: BleuTokenize = "13a",
    max_tokens_per_batch: int = 2048,
) -> Evaluation:
    """Translate and score; also the loss and perplexity of the references, which an ensemble predicts together.

    References longer than the model's maximum length are cut for the loss, with a warning, never for the scores. The
    loss is that of the first reference.

    Args:
        translator: the model.
        sources, references: texts, line by line.
        decoding: the search; default: the bundle's.
        tags: of each source, for a model of several directions; see :meth:`Translator.encode`.
        more_references: further references of all sources, line by line.
        bleu_tokenize: sacreBLEU's tokenizer.
        max_tokens_per_batch: a matter of speed and memory only.

    Raises:
        ValueError: if there are not as many references as sources, or none, or a tag is not one of training.
    """
    check_references(sources, [references, *more_references])  # there will be one output for each source
    outputs = translator.translate(sources, decoding, tags=tags, max_tokens_per_batch=max_tokens_per_batch)
    models = translator.models
    room = min(model.config.max_length for model in models) - 1
    source_ids = [ids[:room] for ids in translator.encode(sources, tags)]
    whole_ids = translator.bundle.target_tokenizer.encode_batch(list(references))
    _warn_of_cuts(whole_ids, room)
    target_ids = [ids[:room] for ids in whole_ids]
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(source_ids, target_ids, strict=True)]
    total, count = 0.0, 0
    with evaluation_mode(*models):
        for numbers in length_batches(lengths, max_tokens_per_batch):
            values_N = forced_log_probabilities(
                translator, [source_ids[number] for number in numbers], [target_ids[number] for number in numbers]
            )
            total, count = total - float(values_N.sum()), count + len(values_N)
    loss = total / count
    scores = all_scores(outputs, references, bleu_tokenize, more_references=more_references)
    which = f", first of {1 + len(more_references)} references" if more_references else ""
    scores += [
        Score("loss", loss, f"nats per target token, no smoothing{which}"),
        Score("perplexity", perplexity(loss), "exp(loss)"),
    ]
    return Evaluation(scores, outputs)


@torch.inference_mode()
def evaluate_language_model(
    generator: Generator, texts: Sequence[str], *, stride: int | None = None, max_tokens_per_batch: int = 4096
) -> list[Score]:
    """Loss, perplexity, bits per byte and bits per character over whole texts.

    They are one text, in windows of the model's maximum length side by side: every token but the first is scored once,
    and a token at the start of a window is predicted from the one before it only. A model that was trained on packed
    documents is scored on each document by itself.

    With a stride the windows overlap: see :func:`strided_windows`. The scores get better, as every token has a long
    context, and the work is more by the window's length over the stride.

    Args:
        generator: the model.
        texts: each a document.
        stride: tokens from one window to the next; None: windows side by side, as in training.
        max_tokens_per_batch: a matter of speed and memory only.

    Raises:
        ValueError: there is nothing to score, or the stride is longer than a window.
    """
    bundle, model = generator.bundle, generator.model
    tokenizer, length, packing = bundle.target_tokenizer, model.config.max_length, bundle.config.packing
    documents = encode_documents(texts, tokenizer, mark_documents=bundle.config.mark_documents)
    batches: Iterable[TextBatch]
    if stride is None:
        rows = max(1, max_tokens_per_batch // length)
        examples, plans, _ = scored_batches(documents, tokenizer, length=length, rows=rows, packing=packing)
        batches = (examples[BatchPlan(0, parts)] for parts in plans)
        how = f"documents in parts of {length} tokens" if packing else f"windows of {length} tokens side by side"
    else:
        sequences = documents.ids if packing else [list(itertools.chain.from_iterable(documents.ids))]
        batches = strided_batches(
            sequences, length=length, stride=stride, pad_id=tokenizer.pad_id, max_tokens_per_batch=max_tokens_per_batch
        )
        how = f"{'documents in ' if packing else ''}windows of {length} tokens, stride {stride}"
    total, count = 0.0, 0
    with evaluation_mode(model):
        for batch in batches:
            _, tokens_BL, labels_BL, scored_BL, segments_BL = _on(generator.device, batch)
            hidden_BLD = model.hidden(tokens_BL, segments_BL=segments_BL).hidden_BLD
            sums = cross_entropy(hidden_BLD, model.output.weight, labels_BL, scored_BL)
            total, count = total + float(sums.nll), count + int(sums.num_tokens)
    return [
        Score("loss", total / count, f"nats per token, {how}"),
        Score("perplexity", perplexity(total / count), "exp(loss)"),
        Score("bits_per_byte", bits_per_byte(total, documents.num_bytes), f"UTF-8 bytes, {how}"),
        Score("bits_per_character", bits_per_character(total, sum(map(len, texts))), f"Unicode characters, {how}"),
    ]


def _warn_of_cuts(references: Sequence[Sequence[int]], room: int) -> None:
    """Tell of references that the model cannot predict to their end."""
    lines = [line for line, ids in enumerate(references, start=1) if len(ids) > room]
    if lines:
        log.warning(
            "%d of %d references have more than the model's %d tokens and are cut for the loss (not for the other "
            "scores), the first in line %d.",
            len(lines), len(references), room, lines[0],
        )  # fmt: skip


def _on(device: torch.device, batch: TextBatch) -> TextBatch:
    index_B, tokens_BL, labels_BL, scored_BL, segments_BL = batch
    segments_BL = None if segments_BL is None else segments_BL.to(device)
    return TextBatch(index_B, tokens_BL.to(device), labels_BL.to(device), scored_BL.to(device), segments_BL)
