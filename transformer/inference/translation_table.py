"""Which target tokens translate a source token: IBM Model 1, learnt from parallel texts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

MAX_COOCCURRENCES = 60_000_000
"""Pairs of a source and a target position learnt from at most: about half a gigabyte of memory."""

BLOCK = 4_000_000  # such pairs worked on at once


class PairSample:
    """Pairs of token ids, evenly spread over a stream of unknown length, within a bound of memory.

    Every stride-th pair is kept; when there are too many co-occurrences, every second one goes and the stride doubles.

    Args:
        max_cooccurrences: of source (one more for the empty word) and target positions, summed over pairs.

    Attributes:
        sources, targets: the pairs that are kept.
        num_seen: pairs added.
    """

    def __init__(self, max_cooccurrences: int = MAX_COOCCURRENCES) -> None:
        self.sources: list[np.ndarray] = []
        self.targets: list[np.ndarray] = []
        self.num_seen = 0
        self._stride, self._max, self._size = 1, max_cooccurrences, 0

    def add(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Keep the next pair, or pass over it."""
        if self.num_seen % self._stride == 0:
            self.sources.append(np.asarray(source, dtype=np.int32))
            self.targets.append(np.asarray(target, dtype=np.int32))
            self._size += self._cooccurrences(-1)
            while self._size > self._max and len(self.sources) > 1:
                self._size -= sum(map(self._cooccurrences, range(1, len(self.sources), 2)))
                del self.sources[1::2], self.targets[1::2]
                self._stride *= 2
        self.num_seen += 1

    def _cooccurrences(self, place: int) -> int:
        return (len(self.sources[place]) + 1) * len(self.targets[place])


class TranslationTable(NamedTuple):
    """Probabilities of target tokens given a source token, for the pairs of tokens that occur in a pair of sentences.

    Attributes:
        source_E, target_E: the tokens of each entry, sorted by source, then by target. The empty word is the source
            ``source_vocab_size``.
        probability_E: of the target given the source; those of a source sum to 1.
    """

    source_E: np.ndarray
    target_E: np.ndarray
    probability_E: np.ndarray

    def best(self, per_token: int, source_vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
        """The ``per_token`` most probable targets of each source token, of equal ones the smaller ids.

        Returns:
            starts, targets: those of source token s are ``targets[starts[s] : starts[s + 1]]``, the best one first.
        """
        order = np.lexsort((self.target_E, -self.probability_E, self.source_E))
        source_E, target_E = self.source_E[order], self.target_E[order]
        first = np.searchsorted(source_E, np.arange(source_vocab_size + 1))
        rank_E = np.arange(len(source_E)) - first[source_E]
        kept_E = (rank_E < per_token) & (source_E < source_vocab_size)
        starts = np.zeros(source_vocab_size + 1, dtype=np.int64)
        np.cumsum(np.bincount(source_E[kept_E], minlength=source_vocab_size), out=starts[1:])
        return starts, target_E[kept_E].astype(np.int32)


def learn_translation_table(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    source_vocab_size: int,
    target_vocab_size: int,
    *,
    iterations: int = 5,
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
    block: int = BLOCK,
) -> TranslationTable:
    """IBM Model 1 (Brown et al. 1993, section 4.1) by expectation maximisation from equal probabilities.

    Each target token comes from one source token of its sentence, or from the empty word, all equally probable.

    Args:
        sources, targets: token ids of the pairs, side by side.
        source_vocab_size, target_vocab_size: the ids are below.
        iterations: of EM.
        progress: told what is being done, how many blocks of it are done, and of how many.
        block: pairs of positions worked on at once; a matter of memory only.

    Raises:
        ValueError: there is no pair with a target.
    """
    assert len(sources) == len(targets)
    blocks = _blocks(sources, targets, source_vocab_size, block)
    if not blocks:
        raise ValueError("a translation table needs at least one pair of texts that are not empty.")
    keys_E = np.zeros(0, dtype=np.int64)
    for number, (source_T, target_S, which_T) in enumerate(blocks):
        keys = _keys(source_T, target_S, which_T, target_vocab_size)
        keys_E = np.union1d(keys_E, keys)
        progress("words that occur together", number + 1, len(blocks))
    entries = [
        np.searchsorted(keys_E, _keys(source_T, target_S, which_T, target_vocab_size)).astype(np.int32)
        for source_T, target_S, which_T in blocks
    ]
    source_E, target_E = np.divmod(keys_E, target_vocab_size)
    probability_E = np.ones(len(keys_E))
    for iteration in range(iterations):
        counts_E = np.zeros(len(keys_E))
        for number, (entry_T, (_, target_S, which_T)) in enumerate(zip(entries, blocks, strict=True)):
            joint_T = probability_E[entry_T]
            total_S = np.bincount(which_T, joint_T, minlength=len(target_S))
            counts_E += np.bincount(entry_T, joint_T / total_S[which_T], minlength=len(keys_E))
            progress("learning translations", iteration * len(blocks) + number + 1, iterations * len(blocks))
        total = np.bincount(source_E, counts_E, minlength=source_vocab_size + 1)
        # Products of many small numbers may all be 0 for a source; its entries stay 0 then.
        probability_E = np.divide(counts_E, total[source_E], out=np.zeros_like(counts_E), where=total[source_E] > 0)
    return TranslationTable(source_E, target_E, probability_E)


class _Block(NamedTuple):
    """Co-occurrences T of some sentence pairs: for each its source token and which of the target positions S it is."""

    source_T: np.ndarray
    target_S: np.ndarray
    which_T: np.ndarray


def _blocks(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], empty_word: int, size: int) -> list[_Block]:
    blocks: list[_Block] = []
    pairs = [place for place in range(len(sources)) if len(targets[place]) > 0]
    start = total = 0
    for end, place in enumerate(pairs, start=1):
        total += (len(sources[place]) + 1) * len(targets[place])
        if total >= size or end == len(pairs):
            some = pairs[start:end]
            blocks.append(_block([sources[p] for p in some], [targets[p] for p in some], empty_word))
            start, total = end, 0
    return blocks


def _block(sources: list[np.ndarray], targets: list[np.ndarray], empty_word: int) -> _Block:
    empty = np.array([empty_word], dtype=np.int32)
    words = np.concatenate([part for source in sources for part in (empty, source)])
    lengths = np.array([len(source) + 1 for source in sources])
    firsts = np.cumsum(lengths) - lengths
    sentence_S = np.repeat(np.arange(len(targets)), [len(target) for target in targets])
    # Each target position beside each source position of its sentence.
    which_T = np.repeat(np.arange(len(sentence_S), dtype=np.int32), lengths[sentence_S])
    begins_S = np.cumsum(lengths[sentence_S]) - lengths[sentence_S]
    place_T = np.arange(len(which_T)) - begins_S[which_T] + firsts[sentence_S][which_T]
    return _Block(words[place_T], np.concatenate(targets), which_T)


def _keys(source_T: np.ndarray, target_S: np.ndarray, which_T: np.ndarray, target_vocab_size: int) -> np.ndarray:
    keys_T: np.ndarray = source_T.astype(np.int64) * target_vocab_size + target_S[which_T]
    return keys_T
