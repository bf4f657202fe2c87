"""Score a bundle on a split of a corpus."""

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


class PairSplit(NamedTuple):
    """The pairs of a split, line by line.

    Attributes:
        split: which part of the corpus it is.
        sources, references: texts.
        tags: of each source.
        bleu_tokenize: sacreBLEU's tokenizer for these texts.
    """

    split: Split
    sources: list[str]
    references: list[str]
    tags: list[str | None]
    bleu_tokenize: BleuTokenize


class TextSplit(NamedTuple):
    """The texts of a split; ``split`` says which part of the corpus it is."""

    split: Split
    texts: list[str]


class SplitScores(NamedTuple):
    """Scores of one split; for translation also its texts, line by line."""

    split: Split
    scores: list[Score]
    sources: Sequence[str]
    outputs: Sequence[str]
    references: Sequence[str]


def read_split(config: BundleConfig, data: DataConfig, split: Split) -> PairSplit | TextSplit:
    """Read what a bundle is to be scored on; the validation split stands in for a missing test split.

    Raises:
        ValueError: if the corpus does not fit the model, or cannot be read.
    """
    translates = isinstance(config.model, EncoderDecoderConfig)
    if isinstance(data, TextCorpusConfig):
        if translates:
            raise ValueError(f"this bundle translates and needs sentence pairs, but `data.name` is {data.name}.")
        marks = config.mark_documents  # then the pieces of running text must not get any
        texts = read_documents(data, split, whole_files=marks)
        if texts is None:
            split, texts = "validation", read_documents(data, "validation", whole_files=marks)
        if texts is None:
            raise ValueError("`data` has no test split and no validation split to score.")
        return TextSplit(split, texts)
    if not translates:
        raise ValueError(f"this bundle is a language model and needs texts, but `data.name` is {data.name}.")
    pairs = read_pairs(data, split)
    if pairs is None:
        split, pairs = "validation", read_pairs(data, "validation")
    if pairs is None:
        raise ValueError("`data` has no test split and no validation split to score.")
    sources, references = [source for source, _ in pairs.rows], [target for _, target in pairs.rows]
    return PairSplit(split, sources, references, list(pairs.tags), data.bleu_tokenize)


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
    """Score a bundle on what :func:`read_split` has read for it.

    Args:
        bundle: the model.
        texts: pairs for an encoder-decoder, texts for a language model.
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
        bleu_tokenize=texts.bleu_tokenize if bleu_tokenize is None else bleu_tokenize,
        max_tokens_per_batch=max_tokens_per_batch,
    )
    return SplitScores(texts.split, evaluation.scores, texts.sources, evaluation.outputs, texts.references)


def score_split(
    bundle: Bundle,
    data: DataConfig,
    split: Split,
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
        split: which part of it; the validation split stands in for a missing test split.
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
