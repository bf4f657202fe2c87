"""Parallel corpora to train translation on, as plain settings.

Every kind of corpus is one class with its own ``name``.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config
from transformer.data.corpora.source_config import Files, FileSplits, HubSplits, Mixture, NonEmpty
from transformer.data.preparation.filter_config import PairFiltersConfig

Column = Annotated[int, Field(ge=0)] | NonEmpty
BleuTokenize = Literal["13a", "none", "intl", "char", "zh"]


class PairCorpus(Config):
    """What all parallel corpora have."""

    source_language: NonEmpty = "source"
    """Label of the source language, such as ``en``, for logs, model cards and scores."""
    target_language: NonEmpty = "target"
    """Label of the target language, such as ``de``."""
    tag: NonEmpty | None = None
    """A token of its own, such as ``<2de>``, put before every source: tells a model of several directions which one."""
    bleu_tokenize: BleuTokenize = "13a"
    """How BLEU cuts translations and references into words, by sacreBLEU's names: ``none`` where the texts are
    tokenised already, ``zh`` or ``char`` for languages without spaces."""
    filters: PairFiltersConfig = PairFiltersConfig()
    """Training pairs to leave out."""


class PhrasesConfig(PairCorpus):
    """Embedded parallel corpus: numbers, dates, times, prices, quantities, by ``num2words`` and ``babel``.

    No number, date, time or price of the validation or test sentences occurs in training.
    """

    name: Literal["phrases"] = "phrases"
    source_language: NonEmpty = "en"
    """Language code known to both ``num2words`` and ``babel``."""
    target_language: NonEmpty = "de"
    """Language code known to both ``num2words`` and ``babel``; must differ from `source_language`."""
    num_train: int = Field(default=20_000, gt=0)
    """Training pairs, all with different sources."""
    num_validation: int = Field(default=500, gt=0)
    """Validation pairs."""
    num_test: int = Field(default=1_000, gt=0)
    """Test pairs."""
    seed: int = Field(default=1, ge=0)
    """Decides the sentences and which values are held out. Same settings, same corpus."""

    @property
    def has_validation(self) -> bool:
        """Always."""
        return True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.source_language == self.target_language:
            raise ValueError(
                f"`source_language` and `target_language` must differ, but both are {self.source_language!r}."
            )
        return self


class ParallelTextConfig(PairCorpus):
    """Text files for each side; line k of one translates line k of the other. As many files on both sides."""

    name: Literal["parallel_text"] = "parallel_text"
    folder: NonEmpty = "."
    """Folder that relative paths below start from."""
    train_source: Files
    train_target: Files
    validation_source: Files | None = None
    """Validation files; null only in a mixture where another corpus has some."""
    validation_target: Files | None = None
    test_source: Files | None = None
    """Test files, or null for no test set. Given together with `test_target` or not at all."""
    test_target: Files | None = None

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation split."""
        return self.validation_source is not None

    @model_validator(mode="after")
    def _check(self) -> Self:
        both = {
            "validation": (self.validation_source, self.validation_target),
            "test": (self.test_source, self.test_target),
        }
        for split, (source, target) in both.items():
            if (source is None) != (target is None):
                given, missing = ("source", "target") if target is None else ("target", "source")
                raise ValueError(f"`{split}_{missing}` must be given too, because `{split}_{given}` is.")
        return self


class _ColumnPairs(PairCorpus, FileSplits):
    source_column: Column = 0
    target_column: Column = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_different("source_column", self.source_column, "target_column", self.target_column)
        if isinstance(self.source_column, str) != isinstance(self.target_column, str):
            raise ValueError(
                "`source_column` and `target_column` must both be numbers (no header) or both be names "
                f"(header), but are {self.source_column!r} and {self.target_column!r}."
            )
        return self


class TsvConfig(_ColumnPairs):
    """Tab-separated text. Tabs separate and nothing else: quotes and backslashes are text.

    Columns are either numbers from 0, and then the first line is data, or names, and then the first line is
    the header. A line with too few columns is broken; further columns are not read.
    """

    name: Literal["tsv"] = "tsv"


class CsvConfig(_ColumnPairs):
    """Comma-separated values with quoted fields (RFC 4180), as spreadsheets write them; columns as for TSV."""

    name: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(pattern=r'^[^"\r\n]$')] = ","
    """What separates the columns, such as ``;`` in some countries."""


class _FieldPairs(PairCorpus):
    source_field: NonEmpty = "source"
    """Where the source text is; a dot steps into a nested object, as in ``translation.en``."""
    target_field: NonEmpty = "target"
    """Where the target text is; a dot steps into a nested object, as in ``translation.de``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_different("source_field", self.source_field, "target_field", self.target_field)
        return self


class JsonlConfig(_FieldPairs, FileSplits):
    """One JSON object a line."""

    name: Literal["jsonl"] = "jsonl"


class ParquetConfig(_FieldPairs, FileSplits):
    """Parquet files with two string columns, possibly inside structs."""

    name: Literal["parquet"] = "parquet"


class TmxConfig(PairCorpus, FileSplits):
    """Translation memories (TMX 1.4). Units without one of the languages have a missing side.

    `source_language` and `target_language` choose the variants: ``en`` also takes ``en-US``, but not the other way.
    """

    name: Literal["tmx"] = "tmx"
    source_language: NonEmpty
    target_language: NonEmpty

    @model_validator(mode="after")
    def _check(self) -> Self:
        one, other = sorted((self.source_language.lower(), self.target_language.lower()), key=len)
        if other == one or other.startswith(f"{one}-"):
            raise ValueError(
                "`source_language` and `target_language` must choose different variants, but are "
                f"{self.source_language!r} and {self.target_language!r}."
            )
        return self


class HubPairsConfig(_FieldPairs, HubSplits):
    """Pairs of a data set on the Hugging Face hub."""

    name: Literal["hub"] = "hub"


AnyPairCorpus = (
    PhrasesConfig
    | ParallelTextConfig
    | TsvConfig
    | CsvConfig
    | JsonlConfig
    | ParquetConfig
    | TmxConfig
    | HubPairsConfig
)
PairCorpusConfig = Annotated[AnyPairCorpus, Field(discriminator="name")]


class MixtureConfig(Mixture):
    """Several parallel corpora."""

    name: Literal["mixture"] = "mixture"
    corpora: dict[str, PairCorpusConfig]
    """The corpora, by names of your choice."""

    @property
    def has_validation(self) -> bool:
        """Whether any corpus has a validation split."""
        return any(corpus.has_validation for corpus in self.corpora.values())

    @property
    def source_language(self) -> str:
        """All source languages."""
        return "/".join(dict.fromkeys(corpus.source_language for corpus in self.corpora.values()))

    @property
    def target_language(self) -> str:
        """All target languages."""
        return "/".join(dict.fromkeys(corpus.target_language for corpus in self.corpora.values()))

    @property
    def bleu_tokenize(self) -> BleuTokenize:
        """That of all corpora: their sentences are scored together."""
        return next(iter(self.corpora.values())).bleu_tokenize

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_mixture(set(self.corpora))
        found = sorted({corpus.bleu_tokenize for corpus in self.corpora.values()})
        if len(found) > 1:
            raise ValueError(
                f"`bleu_tokenize` must be the same for all `corpora`, whose sentences are scored together, but is "
                f"{' and '.join(found)}."
            )
        return self


def _check_different(first: str, first_value: int | str, second: str, second_value: int | str) -> None:
    if first_value == second_value:
        raise ValueError(f"`{first}` and `{second}` must differ, but both are {first_value!r}.")
