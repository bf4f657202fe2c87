"""A test set in files of one's own, whatever a bundle was trained with."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformer.bundle import BundleConfig
from transformer.data.corpora.document_config import PlainTextConfig, TextCorpusConfig
from transformer.data.corpora.files import read_lines, read_pieces
from transformer.data.corpora.sources import document_corpora, pair_corpora
from transformer.inference.split import PairSplit, TextSplit
from transformer.models.config import EncoderDecoderConfig


class PairFiles(NamedTuple):
    """Sources and references, a sentence a line.

    Attributes:
        source: file of the sources.
        references: files of the references, the same lines in each.
        tag: of all sources, for a model of several directions; default: the only one of training.
    """

    source: Path
    references: tuple[Path, ...]
    tag: str | None = None


class TextFiles(NamedTuple):
    """Texts for a language model."""

    paths: tuple[Path, ...]


def read_files(config: BundleConfig, files: PairFiles | TextFiles) -> PairSplit | TextSplit:
    """Read files as a bundle is to be scored on them. BLEU's tokenizer is that of the bundle's own data.

    Raises:
        ValueError: the files do not fit the model or each other, or cannot be read.
    """
    translates = isinstance(config.model, EncoderDecoderConfig)
    if isinstance(files, TextFiles):
        if translates:
            raise ValueError("this bundle translates: give it `source` and `reference`, not `text`.")
        return TextSplit(None, [text for path in files.paths for text in _documents(config, path)])
    if not translates:
        raise ValueError("this bundle is a language model: give it `text`, not `source` and `reference`.")
    assert not isinstance(config.data, TextCorpusConfig), "a translation model is trained on pairs"
    sources = lines_of(files.source)
    references = [lines_of(path) for path in files.references]
    for path, lines in zip(files.references, references, strict=True):
        if len(lines) != len(sources):
            raise ValueError(
                f"{path} must have one reference a line for each of the {len(sources)} lines of {files.source}, but "
                f"has {len(lines)} lines."
            )
    known = {corpus.tag for corpus in pair_corpora(config.data).values()}
    tag = next(iter(known)) if files.tag is None and len(known) == 1 else files.tag
    first, *more = references
    return PairSplit(None, sources, first, [tag] * len(sources), config.data.bleu_tokenize, more)


def read_translations(path: Path, num_sentences: int, test_set: str) -> list[str]:
    """Another system's translations, one a line.

    Args:
        path: their file.
        num_sentences: of the test set.
        test_set: what it is called in the message of an error.

    Raises:
        ValueError: the file cannot be read, or has another number of lines than there are sentences.
    """
    lines = lines_of(path)
    if len(lines) != num_sentences:
        raise ValueError(
            f"{path} must have one translation a line for each of the {num_sentences} sentences of {test_set}, "
            f"but has {len(lines)} lines."
        )
    return lines


def lines_of(path: Path) -> list[str]:
    """All lines of a file, without their ends and without a byte order mark; it may be compressed.

    Raises:
        ValueError: the file is missing, empty, or not UTF-8.
    """
    lines = []
    for line in read_lines(path):
        if isinstance(line, ValueError):
            raise line
        lines.append(line)
    return lines


def _documents(config: BundleConfig, path: Path) -> Sequence[str]:
    """A file is a document; for a model that was trained on a document a line, each line that is not blank."""
    assert isinstance(config.data, TextCorpusConfig), "a language model is trained on texts"
    corpora = document_corpora(config.data).values()
    if all(isinstance(corpus, PlainTextConfig) and corpus.documents == "line" for corpus in corpora):
        return [line for line in lines_of(path) if line.strip()]
    return ["".join(read_pieces(path))]
