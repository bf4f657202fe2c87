"""Everything a language-model run needs of its data: a tokenizer, batches, validation documents and a report."""

from functools import partial
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from transformer.data.batches.buckets import Batches
from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.batches.documents import (
    Documents,
    PackedDocuments,
    Segments,
    TokenStream,
    WindowBatches,
    Windows,
    encode_documents,
)
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.packing import PackedBatches, pack
from transformer.data.config import TextDataConfig
from transformer.data.corpora.rows import Split
from transformer.data.corpora.scored import check_test_files, read_all
from transformer.data.corpora.sources import document_corpora, open_source
from transformer.data.datamodule import MappedTraining, RunData, StreamedTraining
from transformer.data.preparation.ids import EncodedCorpus
from transformer.data.preparation.report import PreparationReport
from transformer.data.preparation.texts import Progress
from transformer.data.run_preparation import Preparation, RunLimits, merge_dropout, report_of
from transformer.data.streams.texts import TextPools
from transformer.data.subwords.config import TokenizerConfig
from transformer.data.subwords.tokenizer import Tokenizer

PIECES = 16  # of running text in a shuffle buffer, about a megabyte each


class TextSetup(NamedTuple):
    """What a run works with; there is no report on a stream.

    Attributes:
        num_scored: tokens of the validation documents that are predicted.
    """

    data: RunData
    tokenizer: Tokenizer
    validation: Documents
    num_scored: int
    report: PreparationReport | None


def read_documents(config: TextDataConfig, split: Split, *, whole_files: bool = False) -> list[str] | None:
    """The documents of a split in memory, or None if no corpus has such a split.

    Args:
        config: the corpora.
        split: which part of them.
        whole_files: running text comes as one text for each file, and not in pieces of about a megabyte, which are
            cut faster but must not be taken for documents.

    Raises:
        ValueError: a file or a row cannot be read.
    """
    texts: list[str] = []
    for name, corpus in document_corpora(config).items():
        source = open_source(name, corpus, split)
        if source is None:
            continue
        if whole_files and not corpus.marks_documents:
            for shard in source.shards:
                pieces = read_all(source._replace(shards=(shard,)), keep_blank=True)
                texts.append("".join(text for (text,) in pieces))
        else:
            texts += [text for (text,) in read_all(source, keep_blank=not corpus.marks_documents)]
    return texts or None


def prepare_text(
    data: TextDataConfig,
    tokenizer_config: TokenizerConfig,
    batching: BatchingConfig,
    preparation: PreparationConfig,
    limits: RunLimits,
    *,
    stored: Tokenizer | None,
    progress: Progress,
) -> TextSetup:
    """Read, filter and cut a corpus, or find it in the cache. Arguments as for translation."""
    length, rows = limits.max_length, batching.max_tokens_per_batch // limits.max_length
    if rows == 0:
        raise ValueError(
            f"`max_tokens_per_batch` must be at least the model's `max_length` ({length}), but is "
            f"{batching.max_tokens_per_batch}."
        )
    texts = read_documents(data, "validation")
    if texts is None:
        raise ValueError("`data` must have a validation split, but has none.")
    check_test_files(document_corpora(data))
    corpora, marked = Preparation(data, document_corpora(data), preparation, progress), data.marks_documents
    training: MappedTraining | StreamedTraining
    if preparation.streaming:
        tokenizer = stored or corpora.tokenizers(tokenizer_config, [], None).source
        pools = TextPools(
            list(document_corpora(data).values()),
            tokenizer,
            length=length,
            rows=rows,
            packing=batching.packing,
            dropout=merge_dropout(tokenizer_config),
            seed=limits.seed,
        )
        shares = corpora.stream_shares()
        size = preparation.buffer_size if marked or preparation.shuffle_buffer is not None else PIECES
        identity = corpora.identity([tokenizer])
        training = StreamedTraining(corpora.sources, shares, size, pools.prepare, pools.open, identity)
        report = None
    else:
        prepared = corpora.texts()
        tokenizer = stored or corpora.tokenizers(tokenizer_config, [], prepared).source
        encoded = corpora.ids(prepared, [tokenizer], mark_documents=marked)
        training = _mapped(encoded, corpora, tokenizer, rows, batching, limits)
        report = report_of(prepared, encoded)
    validation = encode_documents(texts, tokenizer, mark_documents=marked)
    examples, batches, num_scored = scored_batches(
        validation, tokenizer, length=length, rows=4 * rows, packing=batching.packing
    )
    run_data = RunData(
        training,
        examples,
        batches,
        seed=limits.seed,
        num_workers=batching.num_workers,
        max_batches=limits.max_batches,
        max_epochs=limits.max_epochs,
    )
    return TextSetup(run_data, tokenizer, validation, num_scored, report)


def _mapped(
    encoded: list[EncodedCorpus],
    corpora: Preparation,
    tokenizer: Tokenizer,
    rows: int,
    batching: BatchingConfig,
    limits: RunLimits,
) -> MappedTraining:
    checksum, length = "-".join(corpus.checksum for corpus in encoded), limits.max_length
    if batching.packing:
        segments = Segments([corpus.ids for corpus in encoded], length)
        epochs = Epochs(segments.num_of_table, corpora.shares(segments.num_of_table), limits.seed)
        packed = PackedDocuments(segments, length, tokenizer.pad_id)
        return MappedTraining(packed, partial(_packed_batches, segments, epochs, rows, length, limits.seed), checksum)
    streams = [TokenStream(corpus.ids.chunks(0)) for corpus in encoded]
    sizes = [len(stream) for stream in streams]
    for name, size in zip(corpora.corpora, sizes, strict=True):
        if size < 2:
            raise ValueError(f"the training text of {name} has {size} tokens; at least 2 are needed.")
    whole = TokenStream([chunk for stream in streams for chunk in stream.chunks])
    windows = Windows(whole, length, tokenizer.pad_id, sizes)
    batches = partial(_window_batches, sizes, length, rows, corpora.shares(sizes), limits.seed)
    return MappedTraining(windows, batches, checksum)


def _packed_batches(segments: Segments, epochs: Epochs, rows: int, length: int, seed: int, ranks: int) -> Batches:
    return PackedBatches(segments.lengths_P1, capacity=length, rows=rows, seed=seed, ranks=ranks, epochs=epochs)


def _window_batches(
    sizes: list[int], length: int, rows: int, shares: list[float] | None, seed: int, ranks: int
) -> Batches:
    return WindowBatches(sizes, length, rows, shares, seed=seed, ranks=ranks)


def scored_batches(
    documents: Documents, tokenizer: Tokenizer, *, length: int, rows: int, packing: bool
) -> tuple[Dataset[Any], list[list[Any]], int]:
    """Batches that score documents, and how many tokens they score.

    Without packing the documents are one text, cut into windows side by side, and every token but the first is scored
    once. With packing every document stands for itself, and every token but the first of each is scored once.

    Raises:
        ValueError: there is nothing to score.
    """
    examples: Dataset[Any]
    parts: list[Any]
    if packing:
        segments = Segments([documents.ids], length)
        examples, num_scored = PackedDocuments(segments, length, tokenizer.pad_id), int(segments.lengths_P1.sum())
        parts = list(pack(segments.lengths_P1, length))
    else:
        stream = TokenStream.of(documents.ids)
        examples, num_scored = Windows(stream, length, tokenizer.pad_id), len(stream) - 1
        parts = list(range(0, num_scored, length))
    if num_scored < 1:
        num_tokens = sum(map(len, documents.ids))
        raise ValueError(f"there must be at least 2 tokens to score, but there are {num_tokens}.")
    return examples, [parts[place : place + rows] for place in range(0, len(parts), rows)], num_scored
