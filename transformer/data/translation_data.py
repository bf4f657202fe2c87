"""Everything a translation run needs of its data: tokenizers, batches, validation texts and a report."""

import logging
from functools import partial
from typing import NamedTuple

import numpy as np

from transformer.data.batches.buckets import batches_by_length
from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.pairs import (
    CorpusPairs,
    FittedPairs,
    MemoryPairs,
    PairExamples,
    Pairs,
    PairTokenizers,
    pair_batches,
)
from transformer.data.batches.sampled_lengths import lengths_with_room
from transformer.data.config import TranslationDataConfig
from transformer.data.corpora.rows import Split
from transformer.data.corpora.scored import check_test_files, read_all
from transformer.data.corpora.sources import open_source, pair_corpora
from transformer.data.datamodule import MappedTraining, RunData, StreamedTraining
from transformer.data.preparation.report import PreparationReport
from transformer.data.preparation.texts import Progress
from transformer.data.run_preparation import Preparation, RunLimits, merge_dropout, report_of
from transformer.data.streams.pairs import PairPools
from transformer.data.subwords.config import TokenizerConfig

log = logging.getLogger(__name__)


class TaggedPairs(NamedTuple):
    """A validation or test split: texts, the tag that stands before each source or None, the pairs of each corpus."""

    rows: list[tuple[str, ...]]
    tags: list[str | None]
    sizes: list[int]


class TranslationSetup(NamedTuple):
    """What a run works with; there is no report on a stream."""

    data: RunData
    tokenizers: PairTokenizers
    validation: TaggedPairs
    report: PreparationReport | None


def read_pairs(config: TranslationDataConfig, split: Split) -> TaggedPairs | None:
    """The pairs of a split in memory, or None if no corpus has such a split.

    Raises:
        ValueError: a file or a row cannot be read, or a side is missing.
    """
    rows: list[tuple[str, ...]] = []
    tags: list[str | None] = []
    sizes = []
    for name, corpus in pair_corpora(config).items():
        source = open_source(name, corpus, split)
        if source is not None:
            found = read_all(source)
            rows += found
            tags += [corpus.tag] * len(found)
            sizes.append(len(found))
    return TaggedPairs(rows, tags, sizes) if rows else None


def prepare_translation(
    data: TranslationDataConfig,
    tokenizer: TokenizerConfig,
    batching: BatchingConfig,
    preparation: PreparationConfig,
    limits: RunLimits,
    *,
    stored: PairTokenizers | None,
    progress: Progress,
) -> TranslationSetup:
    """Read, filter and cut a corpus, or find it in the cache.

    Args:
        data, tokenizer, batching, preparation: the settings.
        limits: of the run and its model.
        stored: the tokenizers of a run that goes on, instead of new ones.
        progress: told how far it is.

    Raises:
        ValueError: data or settings do not fit, before anything is trained.
    """
    if batching.packing and batching.max_tokens_per_batch < limits.max_length:
        raise ValueError(
            f"`batching.packing` makes rows of the model's `max_length` ({limits.max_length}), but "
            f"`batching.max_tokens_per_batch` is only {batching.max_tokens_per_batch}."
        )
    validation = read_pairs(data, "validation")
    if validation is None:
        raise ValueError("`data` must have a validation split, but has none.")
    check_test_files(pair_corpora(data))
    corpora = Preparation(data, pair_corpora(data), preparation, progress)
    training: MappedTraining | StreamedTraining
    if preparation.streaming:
        tokenizers = stored or corpora.tokenizers(tokenizer, _tags(data), None)
        training, report = _streamed(data, corpora, tokenizer, tokenizers, batching, limits), None
    else:
        texts = corpora.texts()
        tokenizers = stored or corpora.tokenizers(tokenizer, _tags(data), texts)
        encoded = corpora.ids(texts, tokenizers, mark_documents=False)
        report = report_of(texts, encoded)
        tags = [corpus.tag for corpus in pair_corpora(data).values()]
        pairs = CorpusPairs(encoded, tags, tokenizers, dropout=merge_dropout(tokenizer))
        fitted = _fitted(pairs, corpora, batching, limits)
        training = _mapped(pairs, fitted, corpora, batching, limits)
        report = _without_over_long(report, pairs, fitted, corpora)
    validation_pairs, batches = _validation(validation, tokenizers, batching, limits)
    run_data = RunData(
        training,
        PairExamples(validation_pairs, tokenizers),
        batches,
        seed=limits.seed,
        num_workers=batching.num_workers,
        max_batches=limits.max_batches,
        max_epochs=limits.max_epochs,
    )
    return TranslationSetup(run_data, tokenizers, validation, report)


def _tags(data: TranslationDataConfig) -> list[str]:
    return list(dict.fromkeys(corpus.tag for corpus in pair_corpora(data).values() if corpus.tag is not None))


def _limit(limits: RunLimits, batching: BatchingConfig) -> tuple[int, str]:
    """Tokens of a training side at most, and what that limit is called."""
    if batching.max_tokens_per_batch < limits.max_length:
        budget = batching.max_tokens_per_batch
        return budget, f"a whole batch, `max_tokens_per_batch` ({budget} tokens)"
    return limits.max_length, f"`max_length` ({limits.max_length} tokens)"


def _fitted(pairs: CorpusPairs, corpora: Preparation, batching: BatchingConfig, limits: RunLimits) -> FittedPairs:
    limit, limit_name = _limit(limits, batching)
    where = partial(_where, pairs, corpora)
    return FittedPairs(pairs, limit, ("training", limit_name), batching.over_long or "skip", where)


def _where(pairs: CorpusPairs, corpora: Preparation, number: int) -> str:
    corpus, place = pairs.place(number)
    return corpora.sources[corpus].where(place)


def _without_over_long(
    report: PreparationReport, pairs: CorpusPairs, fitted: FittedPairs, corpora: Preparation
) -> PreparationReport:
    """The report after over-long pairs have been left out; the lengths of sides are still those of all."""
    if len(fitted.numbers) == len(pairs):
        return report
    corpus_N = pairs.corpus_of(fitted.too_long)
    changed = []
    for number, corpus in enumerate(report.corpora):
        dropped = fitted.too_long[corpus_N == number]
        if len(dropped):
            examples = [(_where(pairs, corpora, int(at)), pairs.texts(int(at))) for at in dropped[:3]]
            corpus = corpus.without("over_long", len(dropped), examples)
        changed.append(corpus)
    return report.model_copy(update={"corpora": tuple(changed)})


def _mapped(
    pairs: CorpusPairs, fitted: FittedPairs, corpora: Preparation, batching: BatchingConfig, limits: RunLimits
) -> MappedTraining:
    sizes = np.bincount(pairs.corpus_of(fitted.numbers), minlength=len(pairs.corpora)).tolist()
    epochs = Epochs(sizes, corpora.shares(sizes), limits.seed, fitted.numbers)
    examples = PairExamples(
        fitted,
        pairs.tokenizers,
        sampling_seed=limits.seed if pairs.dropout > 0 else None,
        max_tokens=batching.max_tokens_per_batch,
        packed_width=limits.max_length if batching.packing else None,
    )
    width, seed = limits.max_length, limits.seed
    lengths_N2 = fitted.lengths_N2
    if pairs.dropout > 0:
        lengths_N2 = lengths_with_room(fitted, _limit(limits, batching)[0], seed)
    batches = partial(pair_batches, lengths_N2, batching, width, epochs, seed)
    return MappedTraining(examples, batches, "-".join(corpus.checksum for corpus in pairs.corpora))


def _streamed(
    data: TranslationDataConfig,
    corpora: Preparation,
    tokenizer: TokenizerConfig,
    tokenizers: PairTokenizers,
    batching: BatchingConfig,
    limits: RunLimits,
) -> StreamedTraining:
    shares = corpora.stream_shares()
    pools = PairPools(
        corpora.sources,
        list(pair_corpora(data).values()),
        tokenizers,
        batching,
        limit=_limit(limits, batching)[0],
        width=limits.max_length,
        dropout=merge_dropout(tokenizer),
        seed=limits.seed,
    )
    size, identity = corpora.config.buffer_size, corpora.identity(tokenizers)
    return StreamedTraining(corpora.sources, shares, size, pools.prepare, pools.open, identity)


def _validation(
    validation: TaggedPairs, tokenizers: PairTokenizers, batching: BatchingConfig, limits: RunLimits
) -> tuple[Pairs, list[list[int]]]:
    """The validation pairs, cut to the model's length but all there, and their batches."""
    pairs = MemoryPairs.encode(validation.rows, validation.tags, tokenizers)
    name = f"`max_length` ({limits.max_length} tokens)"
    fitted = FittedPairs(pairs, limits.max_length, ("validation", name), "truncate")
    longest_N, budget = fitted.lengths_N2.max(axis=1), batching.max_tokens_per_batch
    if longest_N.max() > budget:
        log.warning(
            "validation pair %d has %d tokens, more than `max_tokens_per_batch` (%d): such pairs make batches of one.",
            int(longest_N.argmax()) + 1, int(longest_N.max()), budget,
        )  # fmt: skip
    order = np.lexsort(fitted.lengths_N2.T)
    return fitted, [order[batch].tolist() for batch in batches_by_length(fitted.lengths_N2[order], budget)]
