"""What the preparation of pairs and of documents shares: sources, the mixture, tokenizers, the cache."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from transformer.data.batches.config import PreparationConfig
from transformer.data.batches.mixing import shares_of
from transformer.data.batches.pairs import PairTokenizers
from transformer.data.config import TextDataConfig, TranslationDataConfig
from transformer.data.corpora.document_config import TextMixtureConfig
from transformer.data.corpora.pair_config import MixtureConfig
from transformer.data.corpora.sources import CorpusConfig, Source, open_source
from transformer.data.preparation.cache import Cache, default_folder
from transformer.data.preparation.filters import Filters
from transformer.data.preparation.ids import EncodedCorpus, prepare_ids
from transformer.data.preparation.report import CorpusTally, PreparationReport
from transformer.data.preparation.texts import FORMAT, Progress, Texts, column_of, kept_rows, prepare_texts
from transformer.data.subwords.config import BpeConfig, FileTokenizerConfig, TokenizerConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_files import obtain_tokenizers

STREAMED_TEXTS = 1_000_000  # of each corpus, to learn a vocabulary of a stream from


class RunLimits(NamedTuple):
    """How long a run is, and what its model takes.

    Attributes:
        max_length: tokens of the model's longest sequence.
        seed: of the run.
        max_batches, max_epochs: length of the run on each rank; the shorter counts, one may be None.
    """

    max_length: int
    seed: int
    max_batches: int | None
    max_epochs: int | None


def merge_dropout(config: TokenizerConfig) -> float:
    """The probability of BPE-dropout; 0 for vocabularies without merges."""
    return config.dropout if isinstance(config, BpeConfig | FileTokenizerConfig) else 0.0


class Preparation:
    """The training corpora of one run.

    Args:
        data: the corpora and their mixture.
        corpora: the same, one by one.
        config: how they are read.
        progress: told how far it is.

    Raises:
        ValueError: files are missing, or filters and streaming do not go together.
    """

    def __init__(
        self,
        data: TranslationDataConfig | TextDataConfig,
        corpora: Mapping[str, CorpusConfig],
        config: PreparationConfig,
        progress: Progress,
    ) -> None:
        self.data, self.corpora, self.config, self.progress = data, dict(corpora), config, progress
        self.cache = Cache(
            default_folder() if config.cache_folder is None else Path(config.cache_folder).expanduser().resolve()
        )
        self.sources: list[Source] = []
        for name, corpus in corpora.items():
            if config.streaming and Filters(corpus.filters).needs_memory:
                raise ValueError(
                    f"`filters.duplicates` of the corpus {name!r} needs to know all of it, so it cannot go with "
                    "`preparation.streaming: true`."
                )
            source = open_source(name, corpus, "train", streaming=config.streaming)
            assert source is not None, "every corpus has a training split"
            self.sources.append(source)

    def stream_shares(self) -> list[float] | None:
        """The share of each corpus in a stream; counts rows only where that is needed, or compares parallel files."""
        weighted = isinstance(self.data, MixtureConfig | TextMixtureConfig) and self.data.weights is not None
        needed = len(self.sources) > 1 and not weighted
        return self.shares([source.num_rows() if needed or source.counting_checks else None for source in self.sources])

    def shares(self, sizes: Sequence[int | None]) -> list[float] | None:
        """The share of each corpus in an epoch, or None where all its examples are used."""
        weights, temperature = None, None
        if isinstance(self.data, MixtureConfig | TextMixtureConfig):
            weights, temperature = self.data.weights, self.data.temperature
        if self.config.streaming and weights is None and temperature is None and len(sizes) > 1:
            temperature = 1.0  # a stream has no epochs that could use up each corpus once
        return shares_of(list(self.corpora), sizes, weights, temperature)

    def texts(self) -> list[Texts]:
        """The filtered texts of every corpus, from the cache or made now."""
        return [
            prepare_texts(source, corpus, self.cache, self.progress)
            for source, corpus in zip(self.sources, self.corpora.values(), strict=True)
        ]

    def tokenizers(self, config: TokenizerConfig, tags: Sequence[str], texts: Sequence[Texts] | None) -> PairTokenizers:
        """Tokenizers of these corpora; without prepared texts they are learnt from the first ones of each corpus."""
        num_sides = self.sources[0].num_sides
        if texts is not None:
            tables = [prepared.table for prepared in texts]
            columns: list[Iterable[str]] = [column_of(tables, side) for side in range(num_sides)]
            return obtain_tokenizers(config, tags, columns, [prepared.folder.name for prepared in texts], self.cache)
        # A joint vocabulary is learnt from both sides at once: the files are read one time only.
        sides = [range(num_sides)] if config.joint else [range(side, side + 1) for side in range(num_sides)]
        columns = [self._first_texts(wanted) for wanted in sides]
        filters = [corpus.filters.model_dump_json() for corpus in self.corpora.values()]
        key = [
            f"stream, sides in random order {FORMAT} {STREAMED_TEXTS}",
            *(source.identity() for source in self.sources),
            *filters,
        ]
        return obtain_tokenizers(config, tags, columns, key, self.cache)

    def _first_texts(self, sides: range) -> Iterator[str]:
        # Whoever keeps every second text, because there are too many, must not get those of one side only.
        generator, order = Random(0), list(sides)
        for source, corpus in zip(self.sources, self.corpora.values(), strict=True):
            rows = kept_rows(source, corpus, CorpusTally(source.name))
            for number, (_, row) in enumerate(rows):
                if number == STREAMED_TEXTS:
                    break
                generator.shuffle(order)
                yield from (text for side in order if (text := row[side]) is not None)

    def ids(
        self, texts: Sequence[Texts], tokenizers: Sequence[Tokenizer], *, mark_documents: bool
    ) -> list[EncodedCorpus]:
        """Token ids of every corpus, from the cache or made now."""
        return [
            prepare_ids(each, tokenizers, self.cache, self.progress, mark_documents=mark_documents) for each in texts
        ]

    def identity(self, tokenizers: Iterable[Tokenizer]) -> str:
        """Changes when a file of a stream does, or the tokenizers."""
        return "\n".join([*(source.identity() for source in self.sources), *(t.fingerprint() for t in tokenizers)])


def report_of(texts: Sequence[Texts], encoded: Sequence[EncodedCorpus]) -> PreparationReport:
    """One report on all corpora."""
    return PreparationReport.merged(
        PreparationReport(corpora=(each.report,), sides=made.sides) for each, made in zip(texts, encoded, strict=True)
    )
