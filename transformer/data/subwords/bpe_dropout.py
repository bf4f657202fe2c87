"""BPE-dropout: the same text cut into other pieces every time (Provilkov et al. 2020, arXiv:1910.13267)."""

import functools
import heapq
import itertools
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import tokenizers

Merges = dict[tuple[int, int], tuple[int, int]]

# Words of so many symbols at most are cut by looking up remembered steps, and so many steps are remembered.
MAX_REMEMBERED_LENGTH = 24
MAX_REMEMBERED_STEPS = 100_000

_GONE = -1


class BpeDropout:
    """Cuts texts by byte-pair encoding in which merges are left out at random.

    As in algorithm 1 of the paper: in each step every place where two neighbours could be merged is dropped with
    probability `p`, each for itself and in each step anew; of the places that are left, the one whose merge was learnt
    first (of several, the leftmost) is merged. A word is finished when it has no place, or all were dropped at once.
    Only the best place left matters, so chance is asked for places from the best on until one is left.

    Normalisation, words, symbols, unknown characters and bytes are the tokenizer's own: here, its words are merged.
    Where the file says ``ignore_merges`` (a word of the vocabulary is one token even if no merges lead to it), such a
    word stays whole with probability ``1 - p``.

    Args:
        backend: A tokenizer of byte-pair encoding.

    Raises:
        ValueError: It is another kind of tokenizer.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        content: dict[str, Any] = json.loads(backend.to_str())
        model = content["model"]
        if model["type"] != "BPE":
            raise ValueError(f"BPE-dropout needs byte-pair encoding, but this vocabulary is {model['type']}.")
        self._vocabulary: dict[str, int] = model["vocab"]
        self._pieces = {index: piece for piece, index in self._vocabulary.items()}
        self._merges = _merges(model)
        self._ignore_merges = bool(model["ignore_merges"])
        self._choices = functools.lru_cache(MAX_REMEMBERED_STEPS)(self._find_choices)
        # The same tokenizer without merges gives the symbols to begin with.
        model |= {"merges": [], "ignore_merges": False, "dropout": None}
        self._symbols = tokenizers.Tokenizer.from_str(json.dumps(content))
        self._symbols.encode_special_tokens = True
        self._symbols.no_padding()
        self._symbols.no_truncation()

    def sample(self, text: str, p: float, random: Random) -> list[int]:
        """Token ids of `text`, a function of `random` alone; 0 <= p <= 1."""
        assert 0 <= p <= 1
        encoding = self._symbols.encode(text, add_special_tokens=False)
        sampled: list[int] = []
        for _, group in itertools.groupby(zip(encoding.word_ids, encoding.ids, strict=True), key=_first):
            word = [index for _, index in group]
            sampled += self._word(word, p, random) if len(word) > 1 else word
        return sampled

    def _word(self, word: list[int], p: float, random: Random) -> Sequence[int]:
        if self._ignore_merges:
            whole = self._vocabulary.get("".join(self._pieces.get(index, "") for index in word))
            if whole is not None and list(self._merged(word, 0, random)) != [whole] and random.random() >= p:
                return [whole]
        return self._merged(word, p, random)

    def _merged(self, word: list[int], p: float, random: Random) -> Sequence[int]:
        """`word` after all steps."""
        if len(word) > MAX_REMEMBERED_LENGTH:
            return self._merged_long(word, p, random)
        chance, state = random.random, tuple(word)
        while True:
            for following in self._choices(state):
                if chance() >= p:
                    state = following
                    break
            else:
                return state

    def _find_choices(self, state: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """What one merge can make of a word, the best merge first."""
        places = sorted(
            (*merge, place) for place, pair in enumerate(itertools.pairwise(state)) if (merge := self._merges.get(pair))
        )
        return tuple((*state[:place], merged, *state[place + 2 :]) for _, merged, place in places)

    def _merged_long(self, word: list[int], p: float, random: Random) -> list[int]:
        """The same as :meth:`_merged`, with the places in a heap: a megabyte without a space takes seconds."""
        merges, chance, end = self._merges, random.random, len(word)
        symbols = [*word, _GONE]  # a symbol that is merged into its left neighbour is gone
        after, before = list(range(1, end + 1)), list(range(-1, end))
        places = [(*merge, place) for place, pair in enumerate(itertools.pairwise(word)) if (merge := merges.get(pair))]
        heapq.heapify(places)
        dropped: list[tuple[int, int, int]] = []
        while places:
            candidate = heapq.heappop(places)
            rank, merged, place = candidate
            right = after[place]
            if merges.get((symbols[place], symbols[right])) != (rank, merged):
                continue  # a neighbour has been merged meanwhile
            if chance() < p:
                dropped.append(candidate)
                continue
            symbols[place], symbols[right] = merged, _GONE
            right = after[place] = after[right]
            before[right] = place
            if merge := merges.get((merged, symbols[right])):
                heapq.heappush(places, (*merge, place))
            left = before[place]
            if left >= 0 and (merge := merges.get((symbols[left], merged))):
                heapq.heappush(places, (*merge, left))
            for candidate in dropped:
                heapq.heappush(places, candidate)
            dropped.clear()
        return [symbol for symbol in symbols if symbol != _GONE]


def _merges(model: dict[str, Any]) -> Merges:
    """From two neighbours to the rank of their merge and what they become."""
    vocabulary, prefix = model["vocab"], len(model["continuing_subword_prefix"] or "")
    merges: Merges = {}
    for rank, (left, right) in enumerate(model["merges"]):
        merges[vocabulary[left], vocabulary[right]] = rank, vocabulary[left + right[prefix:]]
    return merges


def _first(pair: tuple[int | None, int]) -> int | None:
    return pair[0]
