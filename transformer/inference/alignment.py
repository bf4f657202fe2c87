"""Which source words a translation's words come from, read off the cross-attention."""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.data.subwords.tokenizer import Tokenizer
from transformer.inference.batching import in_batches
from transformer.inference.constraints import check_one_for_each
from transformer.inference.forced import forced_pass
from transformer.inference.mode import evaluation_mode
from transformer.inference.scorer import check_lengths, check_same_number, token_ids
from transformer.inference.token_words import words_of_tokens
from transformer.inference.translator import Translator

log = logging.getLogger(__name__)


class Alignment(NamedTuple):
    """How a target hangs together with its source.

    Attributes:
        links: pairs (source word, target word), sorted; words are what stands between white space, numbered from 0.
        source_tokens: as the vocabulary spells them, a tag and the end token included.
        target_tokens: the same, without an end token.
        weights: row t, column s: how much token t of the target attended to token s of the source when it was
            predicted; the mean over the heads of one layer. Each row adds up to 1.
    """

    links: list[tuple[int, int]]
    source_tokens: list[str]
    target_tokens: list[str]
    weights: list[list[float]]

    @property
    def pharaoh(self) -> str:
        """The links as ``0-0 1-2``, source word first."""
        return " ".join(f"{source}-{target}" for source, target in self.links)


def align(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str | Sequence[int]],
    *,
    layer: int | None = None,
    tags: Sequence[str | None] | None = None,
    max_tokens_per_batch: int = 2048,
    lines: Sequence[int] | None = None,
) -> list[Alignment]:
    """Align each target with its source, in a forced pass over both.

    Each target word is linked with the source word that has most of its attention, whatever the end token, a tag and
    white space have. Which layer to read is the finding of Garg et al. (2019), who average over its heads as well; sums
    over the tokens of words have fewer wrong links than their union of links between tokens. A blank text has no links.

    Args:
        translator: one model, no ensemble.
        sources: texts. One longer than the model's maximum length is cut, as in translating it, with a warning.
        targets: texts, or token ids without an end token, such as a search gives.
        layer: decoder layer whose attention is read, from 1; default: the last but one, the only one if there is one.
        tags: of each source, for a model of several directions; see :meth:`Translator.encode`.
        max_tokens_per_batch: padded tokens of either side at once; a matter of speed and memory only.
        lines: number of each pair's line in the user's input, for messages; default: from 1. What holds for several
            pairs of a line, such as translations of the same source, is said once.

    Raises:
        ValueError: there are not as many targets, tags or lines as sources, a target is longer than the model takes,
            there is no such layer, the translator is an ensemble, or a tag is not one of training.
    """
    check_same_number(sources, targets)
    lines = range(1, len(sources) + 1) if lines is None else lines
    check_one_for_each("lines", lines, sources)
    if tags is not None:
        check_one_for_each("tags", tags, sources)
    bundle, room = translator.bundle, translator.model.config.max_length - 1
    all_source_ids, target_ids = translator.encode(sources, tags), token_ids(bundle.target_tokenizer, targets)
    said: set[str] = set()

    def warn(message: str) -> None:
        if message not in said:
            log.warning("%s", message)
        said.add(message)

    for line, ids, own_target_ids in zip(lines, all_source_ids, target_ids, strict=True):
        check_lengths([own_target_ids], room + 1, "the target", line)
        if len(ids) > room:
            warn(f"line {line} has {len(ids)} source tokens, of which the first {room} are aligned.")
    source_ids = [ids[:room] for ids in all_source_ids]
    weights = cross_attention(
        translator, source_ids, target_ids, layer=layer, max_tokens_per_batch=max_tokens_per_batch
    )
    source_tokenizer, target_tokenizer = bundle.source_tokenizer, bundle.target_tokenizer
    alignments = []
    for number, weights_TS in enumerate(weights):
        target, line = targets[number], lines[number]
        target_text = target if isinstance(target, str) else target_tokenizer.decode(target_ids[number])
        source_words = _words(source_tokenizer, all_source_ids[number], sources[number], room, f"line {line}", warn)
        target_words = _words(target_tokenizer, target_ids[number], target_text, room + 1, f"target line {line}", warn)
        alignments.append(
            Alignment(
                word_links(weights_TS, [*source_words, []], target_words),
                source_tokenizer.pieces([*source_ids[number], source_tokenizer.eos_id]),
                target_tokenizer.pieces(target_ids[number]),
                weights_TS.tolist(),
            )
        )
    return alignments


@torch.inference_mode()
def cross_attention(
    translator: Translator,
    source_ids: Sequence[Sequence[int]],
    target_ids: Sequence[Sequence[int]],
    *,
    layer: int | None = None,
    max_tokens_per_batch: int = 2048,
) -> list[Tensor]:
    """Attention weights (T, S) of each pair: row t is of the decoder position that predicts token t of the target.

    Args:
        translator: the model.
        source_ids: S - 1 tokens of each source, behind its tag; the end token is added here.
        target_ids: T tokens of each target, without start and end tokens.
        layer: see :func:`align`; the mean over its heads is taken.
        max_tokens_per_batch: a matter of speed and memory only.

    Raises:
        ValueError: there is no such layer, or several models.
    """
    if len(translator.models) > 1:
        raise ValueError(f"alignments are read off one model, but this is an ensemble of {len(translator.models)}.")
    model = translator.model
    layers = model.config.num_decoder_layers
    layer = max(layers - 1, 1) if layer is None else layer
    if not 1 <= layer <= layers:
        raise ValueError(f"`layer` must be a decoder layer, from 1 to {layers}, but is {layer}.")

    def run(numbers: list[int]) -> list[Tensor]:
        # Nothing is predicted from the last token, so it needs no place in the decoder.
        sources, targets = [source_ids[number] for number in numbers], [target_ids[number][:-1] for number in numbers]
        [decoded] = forced_pass(translator, sources, targets, backend="explicit").decoded
        weights_BHTS = decoded.cross_weights[layer - 1]
        assert weights_BHTS is not None, "the explicit backend returns the weights"
        weights_BTS = weights_BHTS.mean(1).float().cpu()
        return [
            weights_TS[: len(target_ids[number]), : len(source_ids[number]) + 1].clone()
            for number, weights_TS in zip(numbers, weights_BTS, strict=True)
        ]

    lengths = [max(len(source) + 1, len(target)) for source, target in zip(source_ids, target_ids, strict=True)]
    with evaluation_mode(model):
        return in_batches(lengths, max_tokens_per_batch, run)


def word_links(
    weights_TS: Tensor, source_words: Sequence[Sequence[int]], target_words: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """Sorted pairs of each target word and the source word that it attended to most, the source word first.

    Args:
        weights_TS: attention of T target tokens over S source tokens, summed over the tokens of both words.
        source_words, target_words: the words that each token spells a part of; a token of no word does not count.
    """
    weights_NM = _spelling(target_words).T @ weights_TS @ _spelling(source_words)
    if weights_NM.shape[1] == 0:
        return []
    most_N, best_N = weights_NM.max(1)
    # A word that no token spells has no attention: its source or target was cut.
    links = [
        (best, word) for word, (most, best) in enumerate(zip(most_N.tolist(), best_N.tolist(), strict=True)) if most > 0
    ]
    return sorted(links)


def _spelling(words: Sequence[Sequence[int]]) -> Tensor:
    """Of L tokens and N words a matrix (L, N): 1 where a token spells a part of a word."""
    spelling_LN = torch.zeros(len(words), max(itertools.chain.from_iterable(words), default=-1) + 1)
    for place, numbers in enumerate(words):
        spelling_LN[place, list(numbers)] = 1
    return spelling_LN


def _words(
    tokenizer: Tokenizer, ids: Sequence[int], text: str, limit: int, what: str, warn: Callable[[str], None]
) -> list[list[int]]:
    """The words of the first ``limit`` tokens, with a warning if they are not those of the text."""
    words = words_of_tokens(tokenizer, ids, text, limit=limit)
    if words is None:
        decoded = tokenizer.decode(ids)
        warn(f"{what} reads {decoded!r} to the model; words are numbered as there.")
        words = words_of_tokens(tokenizer, ids, decoded, limit=limit)
        assert words is not None, "a text has as many words as itself"
    return words
