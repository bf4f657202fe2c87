"""Score a bundle on a split of a corpus."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer.bundle import Bundle
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
from transformer.models.encoder_decoder import EncoderDecoder


class SplitScores(NamedTuple):
    """Scores of one split; for translation also its texts, line by line."""

    split: Split
    scores: list[Score]
    sources: Sequence[str]
    outputs: Sequence[str]
    references: Sequence[str]


def score_split(
    bundle: Bundle,
    data: DataConfig,
    split: Split,
    decoding: DecodingConfig | None = None,
    *,
    bleu_tokenize: BleuTokenize = "13a",
    max_tokens_per_batch: int = 2048,
    device: str = "cpu",
) -> SplitScores:
    """Score a bundle on ``test`` or ``validation`` of a corpus.

    Args:
        bundle: the model.
        data: the corpus; pairs for an encoder-decoder, texts for a language model.
        split: which part of it; the validation split stands in for a missing test split.
        decoding: the search; default: the bundle's.
        bleu_tokenize: sacreBLEU's tokenizer; ``none`` for references that are tokenised already.
        max_tokens_per_batch: a matter of speed and memory only.
        device: where to run.

    Raises:
        ValueError: if the corpus does not fit the model, or cannot be read.
    """
    translates = isinstance(bundle.model, EncoderDecoder)
    if isinstance(data, TextCorpusConfig):
        if translates:
            raise ValueError(f"this bundle translates and needs sentence pairs, but `data.name` is {data.name}.")
        marks = bundle.config.mark_documents  # then the pieces of running text must not get any
        texts = read_documents(data, split, whole_files=marks)
        if texts is None:
            split, texts = "validation", read_documents(data, "validation", whole_files=marks)
        if texts is None:
            raise ValueError("`data` has no test split and no validation split to score.")
        generator = Generator(bundle, device)
        scores = evaluate_language_model(generator, texts, max_tokens_per_batch=max_tokens_per_batch)
        return SplitScores(split, scores, [], [], [])
    if not translates:
        raise ValueError(f"this bundle is a language model and needs texts, but `data.name` is {data.name}.")
    pairs = read_pairs(data, split)
    if pairs is None:
        split, pairs = "validation", read_pairs(data, "validation")
    if pairs is None:
        raise ValueError("`data` has no test split and no validation split to score.")
    sources, references = [source for source, _ in pairs.rows], [target for _, target in pairs.rows]
    evaluation = evaluate_translation(
        Translator(bundle, device),
        sources,
        references,
        decoding,
        tags=pairs.tags,
        bleu_tokenize=bleu_tokenize,
        max_tokens_per_batch=max_tokens_per_batch,
    )
    return SplitScores(split, evaluation.scores, sources, evaluation.outputs, references)
