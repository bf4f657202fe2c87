"""Corpora of documents to train a language model on, as plain settings."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config
from transformer.data.corpora.source_config import Files, FileSplits, HubSplits, Mixture, NonEmpty
from transformer.data.preparation.filter_config import DocumentFiltersConfig


class TextCorpusConfig(Config):
    """What all corpora of single texts are: data for a language model."""


class DocumentCorpus(TextCorpusConfig):
    """What all single corpora of texts have."""

    filters: DocumentFiltersConfig = DocumentFiltersConfig()
    """Training documents to leave out."""

    @property
    def marks_documents(self) -> bool:
        """Whether each document stands between start and end tokens."""
        return True


class PythonDocsConfig(DocumentCorpus):
    """Embedded text corpus: the help topics that come with Python itself, one document each (about 0.5 MB).

    Topics are split by a hash of their name: about one in ten for validation, one in ten for testing. The
    texts are those of the running Python, so another Python version is another corpus.
    """

    name: Literal["python_docs"] = "python_docs"

    @property
    def has_validation(self) -> bool:
        """Always."""
        return True


class PlainTextConfig(DocumentCorpus):
    """Text files."""

    name: Literal["plain_text"] = "plain_text"
    folder: NonEmpty = "."
    """Folder that relative paths below start from."""
    train: Files
    validation: Files | None = None
    """Validation files. Give either these or `validation_fraction`."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Last part of the training text that is validation instead, as a fraction of its characters.

    With n characters, training is ``text[: int(n * (1 - validation_fraction))]``. With one document a line,
    the cut moves back to the start of the line it falls into.
    """
    test: Files | None = None
    """Test files, or null for no test set."""
    documents: Literal["running", "file", "line"] = "running"
    """What one document is: nothing, all files being one running text; a whole file; or a line (blank ones are left
    out)."""

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation split."""
        return self.validation is not None or self.validation_fraction is not None

    @property
    def marks_documents(self) -> bool:
        """Whether each document stands between start and end tokens: not in running text."""
        return self.documents != "running"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.validation is not None and self.validation_fraction is not None:
            raise ValueError("`validation` and `validation_fraction` exclude each other, but both are given.")
        if self.validation_fraction is not None and self.documents == "file":
            raise ValueError("`validation_fraction` cuts through text, so it cannot go with `documents: file`.")
        if self.documents == "running" and self.filters != DocumentFiltersConfig():
            raise ValueError("`filters` have no effect with `documents: running`, which has no documents to leave out.")
        return self


class _TextField(Config):
    text_field: NonEmpty = "text"
    """Where the text is; a dot steps into a nested object."""


class JsonlTextConfig(_TextField, FileSplits, DocumentCorpus):
    """One JSON object a line, each a document."""

    name: Literal["jsonl_text"] = "jsonl_text"


class ParquetTextConfig(_TextField, FileSplits, DocumentCorpus):
    """Parquet files with a string column, one document a row."""

    name: Literal["parquet_text"] = "parquet_text"


class HubTextConfig(_TextField, HubSplits, DocumentCorpus):
    """Texts of a data set on the Hugging Face hub, one document a row."""

    name: Literal["hub_text"] = "hub_text"


AnyDocumentCorpus = PythonDocsConfig | PlainTextConfig | JsonlTextConfig | ParquetTextConfig | HubTextConfig
DocumentCorpusConfig = Annotated[AnyDocumentCorpus, Field(discriminator="name")]


class TextMixtureConfig(Mixture, TextCorpusConfig):
    """Several corpora of texts."""

    name: Literal["text_mixture"] = "text_mixture"
    corpora: dict[str, DocumentCorpusConfig]
    """The corpora, by names of your choice."""

    @property
    def has_validation(self) -> bool:
        """Whether any corpus has a validation split."""
        return any(corpus.has_validation for corpus in self.corpora.values())

    @property
    def marks_documents(self) -> bool:
        """Whether documents stand between start and end tokens."""
        return all(corpus.marks_documents for corpus in self.corpora.values())

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_mixture(set(self.corpora))
        if len({corpus.marks_documents for corpus in self.corpora.values()}) > 1:
            raise ValueError(
                "running text has no documents, so a corpus with `documents: running` mixes with such only."
            )
        return self
