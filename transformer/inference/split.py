"""Score a bundle on a split of a corpus."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from transformer.bundle import Bundle, BundleConfig
from transformer.data.config import DataConfig
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.corpora.rows import Split
from transformer.data.text_data import read_documents
from transformer.data.translation_data import read_pairs
from transformer.decoding.config import DecodingConfig
from transformer.inference.evaluation import evaluate_language_model, evaluate_translation
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.metrics.text import BleuTokenize, Score
from transformer.models.config import EncoderDecoderConfig

log = logging.getLogger(__name__)


class PairSplit(NamedTuple):
    """The pairs of a split, line by line.

    Attributes:
        split: which part of the corpus it is; None for files of the user's own.
        sources, references: texts.
        tags: of each source.
        bleu_tokenize: sacreBLEU's tokenizer for these texts.
        more_references: further references of all sources, if there are any.
    """

    split: Split | None
    sources: list[str]
    references: list[str]
    tags: list[str | None]
    bleu_tokenize: BleuTokenize
    more_references: Sequence[Sequence[str]] = ()


class TextSplit(NamedTuple):
    """Texts; ``split`` says which part of the corpus they are, None for files of the user's own."""

    split: Split | None
    texts: list[str]


class SplitScores(NamedTuple):
    """Scores of one split; for translation also its texts, line by line."""

    split: Split | None
    scores: list[Score]
    sources: Sequence[str]
    outputs: Sequence[str]
    references: Sequence[str]
    more_references: Sequence[Sequence[str]] = ()


def read_split(config: BundleConfig, data: DataConfig, split: Split | None) -> PairSplit | TextSplit:
    """Read what a bundle is to be scored on.

    Args:
        config: the bundle's.
        data: the corpus.
        split: which part of it; None is the test split or, with a warning, the validation split where there is none.

    Raises:
        ValueError: if the corpus does not fit the model, has no such split, or cannot be read.
    """
    translates = isinstance(config.model, EncoderDecoderConfig)
    wanted: Split = "test" if split is None else split
    if isinstance(data, TextCorpusConfig):
        if translates:
            raise ValueError(f"this bundle translates and needs sentence pairs, but `data.name` is {data.name}.")
        marks = config.mark_documents  # then the pieces of running text must not get any
        texts = read_documents(data, wanted, whole_files=marks)
        if texts is None:
            wanted = _stand_in(split)
            texts = read_documents(data, wanted, whole_files=marks)
        if texts is None:
            raise ValueError("`data` has no test split and no validation split to score.")
        return TextSplit(wanted, texts)
    if not translates:
        raise ValueError(f"this bundle is a language model and needs texts, but `data.name` is {data.name}.")
    pairs = read_pairs(data, wanted)
    if pairs is None:
        wanted = _stand_in(split)
        pairs = read_pairs(data, wanted)
    if pairs is None:
        raise ValueError("`data` has no test split and no validation split to score.")
    sources, references = [source for source, _ in pairs.rows], [target for _, target in pairs.rows]
    return PairSplit(wanted, sources, references, list(pairs.tags), data.bleu_tokenize)


def _stand_in(split: Split | None) -> Split:
    """The split that is scored instead of a missing test split, which is told; refused if one was asked for."""
    if split is not None:
        raise ValueError(f"`data` has no {split} split to score.")
    log.warning("`data` has no test split: its validation split is scored, by which a run chooses its weights.")
    return "validation"


def score_on(
    bundle: Bundle,
    texts: PairSplit | TextSplit,
    decoding: DecodingConfig | None = None,
    *,
    bleu_tokenize: BleuTokenize | None = None,
    stride: int | None = None,
    max_tokens_per_batch: int = 2048,
    device: str = "cpu",
) -> SplitScores:
    """Score a bundle on what has been read for it.

    Args:
        bundle: the model.
        texts: pairs for an encoder-decoder, texts for a language model, from a corpus or from files.
        decoding: translation: the search; default: the bundle's.
        bleu_tokenize: sacreBLEU's tokenizer; default: that of the data.
        stride: language models: see :func:`evaluate_language_model`.
        max_tokens_per_batch: a matter of speed and memory only.
        device: where to run.

    Raises:
        ValueError: a setting has no effect on this kind of model, or a tag is not one of training.
    """
    if isinstance(texts, TextSplit):
        if decoding is not None:
            raise ValueError("`decoding` has no effect on the loss of a language model; leave it out.")
        scores = evaluate_language_model(
            Generator(bundle, device), texts.texts, stride=stride, max_tokens_per_batch=max_tokens_per_batch
        )
        return SplitScores(texts.split, scores, [], [], [])
    if stride is not None:
        raise ValueError("`stride` is for language models and has no effect on a translation model; leave it out.")
    evaluation = evaluate_translation(
        Translator(bundle, device),
        texts.sources,
        texts.references,
        decoding,
        tags=texts.tags,
        more_references=texts.more_references,
        bleu_tokenize=texts.bleu_tokenize if bleu_tokenize is None else bleu_tokenize,
        max_tokens_per_batch=max_tokens_per_batch,
    )
    return SplitScores(
        texts.split, evaluation.scores, texts.sources, evaluation.outputs, texts.references, texts.more_references
    )


def score_split(
    bundle: Bundle,
    data: DataConfig,
    split: Split | None,
    decoding: DecodingConfig | None = None,
    *,
    bleu_tokenize: BleuTokenize | None = None,
    stride: int | None = None,
    max_tokens_per_batch: int = 2048,
    device: str = "cpu",
) -> SplitScores:
    """Score a bundle on ``test`` or ``validation`` of a corpus.

    Args:
        bundle: the model.
        data: the corpus; pairs for an encoder-decoder, texts for a language model.
        split: which part of it, as for :func:`read_split`.
        decoding, bleu_tokenize, stride, max_tokens_per_batch, device: as for :func:`score_on`.

    Raises:
        ValueError: if the corpus does not fit the model, or cannot be read, or as for :func:`score_on`.
    """
    return score_on(
        bundle,
        read_split(bundle.config, data, split),
        decoding,
        bleu_tokenize=bleu_tokenize,
        stride=stride,
        max_tokens_per_batch=max_tokens_per_batch,
        device=device,
    )
