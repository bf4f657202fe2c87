"""How probable given texts are to a model: forced scoring, token by token."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.data.batches.collate import collate_texts
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import BeamConfig, DecodingConfig
from transformer.decoding.penalty import length_penalty
from transformer.inference.batching import in_batches
from transformer.inference.forced import forced_log_probabilities, log_probabilities
from transformer.inference.generator import Generator
from transformer.inference.mode import evaluation_mode
from transformer.inference.translator import Translator
from transformer.metrics.running import perplexity


class ForcedScore(NamedTuple):
    """How probable one text is.

    Attributes:
        tokens: the scored tokens as the vocabulary spells them, an end token included.
        token_log_probabilities: of each, given everything before it; natural logarithms.
        log_probability: their sum.
        score: ``log_probability`` by the length normalisation of a search, as its hypotheses have it; penalties for the
            coverage of the source and for repetitions are no part of it.
    """

    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    score: float

    @property
    def length(self) -> int:
        """Number of scored tokens."""
        return len(self.tokens)

    @property
    def perplexity(self) -> float:
        """``exp`` of the mean negative log probability of a token; NaN if there is no token to score."""
        return perplexity(-self.log_probability / self.length) if self.tokens else math.nan


@torch.inference_mode()
def score_translations(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str | Sequence[int]],
    decoding: DecodingConfig | None = None,
    *,
    tags: Sequence[str | None] | None = None,
    max_tokens_per_batch: int = 2048,
    first_line: int = 1,
) -> list[ForcedScore]:
    """One score for each pair: of the target's tokens and the end token after them, given the source.

    A pair's score depends on that pair alone. The models of an ensemble score together, by the mean of their
    distributions. A blank target is a text like any other: of an empty one the end token is scored. So is a blank
    source.

    Args:
        translator: the model.
        sources: texts.
        targets: texts, or token ids without an end token, such as a search gives.
        decoding: the search whose length normalisation makes the score; default: the bundle's. The score of a search
            that has none is the log probability.
        tags: of each source, for a model of several directions; see :meth:`Translator.encode`.
        max_tokens_per_batch: padded tokens of either side at once; a matter of speed and memory only.
        first_line: number of the first pair in the user's input, for messages.

    Raises:
        ValueError: there are not as many targets as sources, a text is longer than the model takes, or a tag is not one
            of training.
    """
    check_same_number(sources, targets)
    bundle, models = translator.bundle, translator.models
    decoding = bundle.config.decoding if decoding is None else decoding
    tokenizer, room = bundle.target_tokenizer, min(model.config.max_length for model in models) - 1
    source_ids, target_ids = translator.encode(sources, tags), token_ids(tokenizer, targets)
    check_lengths(source_ids, room, "the source", first_line)
    check_lengths(target_ids, room, "the target", first_line)

    def run(numbers: list[int]) -> list[ForcedScore]:
        values_N = forced_log_probabilities(
            translator, [source_ids[number] for number in numbers], [target_ids[number] for number in numbers]
        )
        return _scores([labels[number] for number in numbers], values_N, tokenizer, decoding)

    labels = [[*ids, tokenizer.eos_id] for ids in target_ids]
    lengths = [max(len(source) + 1, len(label)) for source, label in zip(source_ids, labels, strict=True)]
    with evaluation_mode(*models):
        return in_batches(lengths, max_tokens_per_batch, run)


@torch.inference_mode()
def score_texts(
    generator: Generator,
    texts: Sequence[str],
    decoding: DecodingConfig | None = None,
    *,
    max_tokens_per_batch: int = 2048,
    first_line: int = 1,
) -> list[ForcedScore]:
    """One score for each text, which depends on that text alone.

    Where documents are marked in training, a text stands between start and end token, and all of its tokens and the end
    token are scored. Otherwise nothing tells how probable a first token is: it is not scored, and of a text of one
    token or none nothing is (log probability 0).

    Args:
        generator: the model.
        texts: each a document.
        decoding, max_tokens_per_batch, first_line: as for :func:`score_translations`.

    Raises:
        ValueError: a text is longer than the model takes.
    """
    bundle, model = generator.bundle, generator.model
    decoding = bundle.config.decoding if decoding is None else decoding
    tokenizer = bundle.target_tokenizer
    ids = tokenizer.encode_batch(list(texts))
    if bundle.config.mark_documents:
        check_lengths(ids, model.config.max_length - 1, "the text", first_line)
        ids = [[tokenizer.bos_id, *text, tokenizer.eos_id] for text in ids]
    else:
        check_lengths(ids, model.config.max_length + 1, "the text", first_line)  # nothing follows the last token

    def run(numbers: list[int]) -> list[ForcedScore]:
        batch = collate_texts([(number, ids[number]) for number in numbers], tokenizer.pad_id)
        tokens_BL, labels_BL, scored_BL = (tensor.to(generator.device) for tensor in batch[1:4])
        values_N = torch.empty(0)
        if tokens_BL.shape[1] > 0:
            hidden_BLD = model.hidden(tokens_BL).hidden_BLD  # padding on the right is hidden by causality
            values_N = log_probabilities(model, hidden_BLD[scored_BL], labels_BL[scored_BL])
        return _scores([labels[number] for number in numbers], values_N, tokenizer, decoding)

    labels = [text[1:] for text in ids]
    lengths = [len(label) for label in labels]
    with evaluation_mode(model):
        return in_batches(lengths, max_tokens_per_batch, run)


def token_ids(tokenizer: Tokenizer, targets: Sequence[str | Sequence[int]]) -> list[list[int]]:
    """Token ids of targets that are texts, and those that are ids already as they are."""
    texts = iter(tokenizer.encode_batch([target for target in targets if isinstance(target, str)]))
    return [next(texts) if isinstance(target, str) else list(target) for target in targets]


def check_same_number(sources: Sequence[object], targets: Sequence[object]) -> None:
    """Raises ValueError unless there is one target for each source."""
    if len(sources) != len(targets):
        raise ValueError(
            f"there must be as many targets as sources, but there are {len(targets)} targets and "
            f"{len(sources)} sources."
        )


def check_lengths(ids: Sequence[Sequence[int]], room: int, what: str, first_line: int) -> None:
    """Raises ValueError for the first text of more than ``room`` tokens: cut, it would be another text."""
    for number, text in enumerate(ids, start=first_line):
        if len(text) > room:
            raise ValueError(f"line {number}: {what} must have at most the model's {room} tokens, but has {len(text)}.")


def _scores(
    labels: Sequence[list[int]], values_N: Tensor, tokenizer: Tokenizer, decoding: DecodingConfig
) -> list[ForcedScore]:
    """The scores of texts, given the log probabilities of all their labels, text after text."""
    values = iter(values_N.tolist())
    scores = []
    for tokens in labels:
        of_tokens = [next(values) for _ in tokens]
        total = math.fsum(of_tokens)
        score = _normalized(total, len(tokens), decoding)
        scores.append(ForcedScore(tokenizer.pieces(tokens), of_tokens, total, score))
    return scores


def _normalized(log_probability: float, length: int, decoding: DecodingConfig) -> float:
    if length == 0 or not isinstance(decoding, BeamConfig):
        return log_probability
    return log_probability / length_penalty(decoding.normalization, decoding.length_penalty, length)
