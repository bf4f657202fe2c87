"""What to train on and how to cut it into subwords, as plain settings.

Every corpus and every tokenizer is one class with its own ``name``; unions of them are chosen by that name.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config

NonEmpty = Annotated[str, Field(min_length=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


# ---------------------------------------------------------------------------------------- translation corpora


class PhrasesConfig(Config):
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.source_language == self.target_language:
            raise ValueError(
                f"`source_language` and `target_language` must differ, but both are {self.source_language!r}."
            )
        return self


class _LabelledPairs(Config):
    """Languages of a corpus that is read, not generated: labels for logs, model cards and scores."""

    source_language: NonEmpty = "source"
    """Label of the source language, such as ``en``."""
    target_language: NonEmpty = "target"
    """Label of the target language, such as ``de``."""


class ParallelTextConfig(_LabelledPairs):
    """Two text files a split, plain or ``.gz``; line k of one translates line k of the other."""

    name: Literal["parallel_text"] = "parallel_text"
    folder: NonEmpty = "."
    """Folder that relative paths below start from."""
    train_source: NonEmpty
    train_target: NonEmpty
    validation_source: NonEmpty
    validation_target: NonEmpty
    test_source: NonEmpty | None = None
    """Test file, or null for no test set. Given together with `test_target` or not at all."""
    test_target: NonEmpty | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.test_source is None) != (self.test_target is None):
            given, missing = "test_source", "test_target"
            if self.test_source is None:
                given, missing = missing, given
            raise ValueError(f"`{missing}` must be given too, because `{given}` is.")
        return self


class _FileSplits(_LabelledPairs):
    """One file a split."""

    folder: NonEmpty = "."
    """Folder that relative paths below start from."""
    train: NonEmpty
    validation: NonEmpty
    test: NonEmpty | None = None
    """Test file, or null for no test set."""


class TsvConfig(_FileSplits):
    """Tab-separated text, plain or ``.gz``. Tabs separate and nothing else: quotes and backslashes are text.

    Columns are either numbers from 0, and then the first line is data, or names, and then the first line is
    the header. A line with too few columns is an error; further columns are not read.
    """

    name: Literal["tsv"] = "tsv"
    source_column: Annotated[int, Field(ge=0)] | NonEmpty = 0
    target_column: Annotated[int, Field(ge=0)] | NonEmpty = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_different("source_column", self.source_column, "target_column", self.target_column)
        if isinstance(self.source_column, str) != isinstance(self.target_column, str):
            raise ValueError(
                "`source_column` and `target_column` must both be numbers (no header) or both be names "
                f"(header), but are {self.source_column!r} and {self.target_column!r}."
            )
        return self


class _FieldPairs(Config):
    source_field: NonEmpty = "source"
    """Where the source text is; a dot steps into a nested object, as in ``translation.en``."""
    target_field: NonEmpty = "target"
    """Where the target text is; a dot steps into a nested object, as in ``translation.de``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_different("source_field", self.source_field, "target_field", self.target_field)
        return self


class JsonlConfig(_FileSplits, _FieldPairs):
    """One JSON object a line, plain or ``.gz``."""

    name: Literal["jsonl"] = "jsonl"


class ParquetConfig(_FileSplits, _FieldPairs):
    """Parquet files with two string columns, possibly inside structs."""

    name: Literal["parquet"] = "parquet"


class _HubSplits(Config):
    dataset: NonEmpty
    """Name on the Hugging Face hub (``owner/name``), or a local folder in the hub's layout."""
    subset: NonEmpty | None = None
    """Configuration of the data set, where it has several."""
    revision: NonEmpty | None = None
    """Branch, tag or commit on the hub; null is the newest. No meaning for a local folder."""
    train_split: NonEmpty = "train"
    """Split to train on; slices such as ``train[:90%]`` are understood."""
    validation_split: NonEmpty = "validation"
    test_split: NonEmpty | None = None
    """Split to test on, or null for no test set."""


class HubPairsConfig(_LabelledPairs, _HubSplits, _FieldPairs):
    """Pairs of a data set on the Hugging Face hub."""

    name: Literal["hub"] = "hub"


# ------------------------------------------------------------------------------- corpora for a language model


class TextCorpusConfig(Config):
    """What all corpora of single texts are: data for a language model."""


class PythonDocsConfig(TextCorpusConfig):
    """Embedded text corpus: the help topics that come with Python itself, one document each (about 0.5 MB).

    Topics are split by a hash of their name: about one in ten for validation, one in ten for testing. The
    texts are those of the running Python, so another Python version is another corpus.
    """

    name: Literal["python_docs"] = "python_docs"


class PlainTextConfig(TextCorpusConfig):
    """Text files, plain or ``.gz``."""

    name: Literal["plain_text"] = "plain_text"
    folder: NonEmpty = "."
    """Folder that relative paths below start from."""
    train: NonEmpty
    validation: NonEmpty | None = None
    """Validation file. Give either this or `validation_fraction`."""
    validation_fraction: Fraction | None = None
    """Last part of the training text that is validation instead, as a fraction of its characters.

    With n characters, training is ``text[: int(n * (1 - validation_fraction))]``. With one document a line,
    the cut moves back to the start of the line it falls into.
    """
    test: NonEmpty | None = None
    """Test file, or null for no test set."""
    documents: Literal["file", "line"] = "file"
    """What one document is: a whole file with all its characters, or one line (blank ones are left out)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.validation is not None and self.validation_fraction is not None:
            raise ValueError("`validation` and `validation_fraction` exclude each other, but both are given.")
        if self.validation is None and self.validation_fraction is None:
            raise ValueError("One of `validation` and `validation_fraction` must be given, but neither is.")
        return self


class HubTextConfig(_HubSplits, TextCorpusConfig):
    """Texts of a data set on the Hugging Face hub, one document a row."""

    name: Literal["hub_text"] = "hub_text"
    text_field: NonEmpty = "text"
    """Where the text is; a dot steps into a nested object."""


# ------------------------------------------------------------------------------------------------- tokenizers


class _TokenizerBase(Config):
    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normal form that texts take before they are cut; ``none`` returns every text exactly."""
    joint: bool = True
    """Translation: one vocabulary for both languages, or one each. A language model has one text anyway."""
    pad_vocab_to_multiple_of: int = Field(default=1, gt=0)
    """The vocabulary grows by unused tokens to a multiple of this; 64 suits tensor cores."""


class _TrainedSubwords(_TokenizerBase):
    vocab_size: int = Field(default=8_000, gt=4)
    """Tokens in all, the four special ones and the 256 bytes included; the trained size is what counts."""
    split_digits: bool = True
    """Every digit is a token of its own, so that numbers look alike whatever their length."""


class BpeConfig(_TrainedSubwords):
    """Byte-pair encoding over bytes: no text is out of vocabulary."""

    name: Literal["bpe"] = "bpe"


class UnigramConfig(_TrainedSubwords):
    """Unigram language-model subwords over bytes: no text is out of vocabulary."""

    name: Literal["unigram"] = "unigram"


class CharConfig(_TokenizerBase):
    """Every character of the training text is a token; others become the unknown token."""

    name: Literal["char"] = "char"


class ByteConfig(_TokenizerBase):
    """Every byte of the UTF-8 text is a token: 256 and the special ones, nothing to train."""

    name: Literal["byte"] = "byte"


TranslationDataConfig = Annotated[
    PhrasesConfig | ParallelTextConfig | TsvConfig | JsonlConfig | ParquetConfig | HubPairsConfig,
    Field(discriminator="name"),
]
TextDataConfig = Annotated[PythonDocsConfig | PlainTextConfig | HubTextConfig, Field(discriminator="name")]
DataConfig = Annotated[
    PhrasesConfig
    | ParallelTextConfig
    | TsvConfig
    | JsonlConfig
    | ParquetConfig
    | HubPairsConfig
    | PythonDocsConfig
    | PlainTextConfig
    | HubTextConfig,
    Field(discriminator="name"),
]
TokenizerConfig = Annotated[BpeConfig | UnigramConfig | CharConfig | ByteConfig, Field(discriminator="name")]


# --------------------------------------------------------------------------------------------------- batches


class BatchingConfig(Config):
    """How examples become batches."""

    max_tokens_per_batch: int = Field(gt=0)
    """Padded tokens of a batch on either side at most: rows times the longest row. A language model's rows all have
    the model's `max_length`."""
    over_long: Literal["skip", "truncate", "error"] | None = None
    """Translation only: training pairs longer than the model's `max_length` are left out, cut, or refused. What was
    done is counted in the log. Null is skip. Validation and test pairs are never left out, but cut."""
    num_workers: int = Field(default=0, ge=0)
    """Processes that put batches together; the batches are the same for any number."""


def _check_different(first: str, first_value: int | str, second: str, second_value: int | str) -> None:
    if first_value == second_value:
        raise ValueError(f"`{first}` and `{second}` must differ, but both are {first_value!r}.")
