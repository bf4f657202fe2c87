"""Finding phrases in the text that tokens spell, however it is cut into tokens."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transformer.decoding.phrase_automaton import build_automaton
from transformer.decoding.token_graph import NEVER, TokenGraph
from transformer.decoding.token_texts import TokenTexts
from transformer.decoding.word_characters import INSIDE, OUTSIDE

Ids = npt.NDArray[np.int64]

_REMEMBERED_IDS = 256


class Distances(NamedTuple):
    """How far it is from each state to a goal, counted in tokens.

    Attributes:
        tokens: (states,) the least number, of ways that keep to UTF-8 where there are such; NEVER where there is none.
        clean: (states,) whether the way keeps to UTF-8.
        largest: the most of all states that tokens lead to, NEVER if from one of them no way leads to the goal.
    """

    tokens: npt.NDArray[np.int64]
    clean: npt.NDArray[np.bool_]
    largest: int


class PhraseMatcher:
    """Finds one of several phrases in the text of an output. Nothing but its memory of results ever changes.

    A phrase counts where it stands in the text, letter by letter. Where it begins or ends with a letter or digit of a
    script that is written with spaces, no other such character may touch it: ``dog`` is in ``a dog.``, not in
    ``dogs``. The ends of the output are ends of words; so whether a phrase is there shows with the token after it.

    States are small integers: `start`, then what :meth:`advance` and :meth:`step` give. A phrase that is found
    stays found.

    Args:
        tokens: What tokens add to the text.
        alternatives: The phrases, one of which is enough; space around them is ignored.
        whole_words: False looks for the letters alone.

    Attributes:
        start: The state of an output without tokens.
        automaton: Reads bytes.

    Raises:
        ValueError: There is no phrase, one is empty, or they have more than some 10,000 bytes.
    """

    start = OUTSIDE

    def __init__(self, tokens: TokenTexts, alternatives: Sequence[str], *, whole_words: bool = True) -> None:
        texts = tuple(dict.fromkeys(text.strip() for text in alternatives))
        if not texts or "" in texts:
            raise ValueError(f"A phrase must have a character that is not space, but is {list(alternatives)!r}.")
        self.tokens = tokens
        self.alternatives = texts
        self.whole_words = whole_words
        self.automaton = build_automaton(texts, whole_words=whole_words)
        self._forbidden = functools.lru_cache(_REMEMBERED_IDS)(self._compute_forbidden)
        self._nearer = functools.lru_cache(_REMEMBERED_IDS)(self._compute_nearer)

    @property
    def name(self) -> str:
        """The phrases as a text of people calls them."""
        return " or ".join(map(repr, self.alternatives))

    def advance(self, state: int, token: int) -> int:
        """The state after one more token."""
        table = self.automaton.table
        for byte in self.tokens[token]:
            state = int(table[state, byte])
        return state

    def step(self, state: int) -> npt.NDArray[np.int32]:
        """(V,) the states after each token of the vocabulary."""
        reached = np.full(self.tokens.vocab_size, state, dtype=np.int32)
        reached[self.tokens.ids] = self._after_places(state)
        return reached

    def accepted(self, state: int) -> bool:
        """Whether a phrase is in the text, whatever follows."""
        return state == self.automaton.found

    def accepted_at_end(self, state: int) -> bool:
        """Whether a phrase is in the text if the output ends here."""
        return self.accepted(state) or bool(self.automaton.waiting[state])

    def is_in(self, text: str) -> bool:
        """Whether a phrase is in a text, whatever tokens spell it."""
        state = self.start
        for byte in text.encode():
            state = int(self.automaton.table[state, byte])
        return self.accepted_at_end(state)

    def forbidden(self, state: int) -> Ids:
        """Tokens that bring a phrase into the text for good, or surely will: no token could lengthen its last word."""
        return self._forbidden(state)

    def distance(self, state: int) -> int:
        """The least number of tokens until a phrase is in the text if it ended there.

        Tokens that keep to UTF-8 count, where there are such ways.

        Raises:
            ValueError: The vocabulary cannot spell the phrases.
        """
        return int(self.to_accepted_at_end.tokens[state])

    def nearer(self, state: int, distances: Distances) -> Ids:
        """Tokens that lower a distance, of this matcher's two; without breaking a character if possible."""
        return self._nearer(state, distances is self.to_accepted)

    @property
    def to_accepted_at_end(self) -> Distances:
        """To the states in which a phrase is in the text if it ended there.

        Raises:
            ValueError: The vocabulary cannot spell the phrases.
        """
        distances, _ = self._distances
        if distances.tokens[self.start] == NEVER:
            raise ValueError(f"The vocabulary cannot spell the phrase {self.name}.")
        if distances.largest == NEVER:
            raise ValueError(f"The vocabulary has no token that could stand between a word and the phrase {self.name}.")
        return distances

    @property
    def to_accepted(self) -> Distances:
        """To the state in which a phrase is in the text whatever follows."""
        _, distances = self._distances
        return distances

    @functools.cached_property
    def _distances(self) -> tuple[Distances, Distances]:
        """To be in the text at its end, and whatever follows."""
        automaton = self.automaton
        graph = TokenGraph(automaton, self.tokens, self._after_places)  # too large to be kept
        reachable = graph.reachable(self.start)
        found = np.arange(len(automaton.table)) == automaton.found
        at_end, for_good = (
            Distances(tokens, clean, NEVER if (tokens[reachable] == NEVER).any() else int(tokens[reachable].max()))
            for tokens, clean in (graph.distances(automaton.waiting | found), graph.distances(found))
        )
        return at_end, for_good

    @functools.cached_property
    def _unavoidable(self) -> npt.NDArray[np.bool_]:
        """(states,) whether the output has a phrase wherever it ends from here on."""
        automaton = self.automaton
        found: npt.NDArray[np.bool_] = np.arange(len(automaton.table)) == automaton.found
        if not automaton.waiting[automaton.table[~automaton.waiting]].any():
            return found  # phrases of which each is complete with its last character
        graph = TokenGraph(automaton, self.tokens, self._after_places)
        distances, _ = graph.distances(~automaton.waiting & ~found)
        unavoidable: npt.NDArray[np.bool_] = distances == NEVER
        return unavoidable

    def _compute_forbidden(self, state: int) -> Ids:
        return _read_only(self.tokens.ids[self._unavoidable[self._after_places(state)]])

    def _compute_nearer(self, state: int, to_accepted: bool) -> Ids:
        distances = self.to_accepted if to_accepted else self.to_accepted_at_end
        after = distances.tokens[self._after_places(state)]
        nearer = (after != NEVER) & (after < distances.tokens[state])
        if distances.clean[state]:
            nearer &= self._keeps_clean(state)
        return _read_only(self.tokens.ids[nearer])

    def _keeps_clean(self, state: int) -> npt.NDArray[np.bool_]:
        """(N,) whether each token, by place, keeps to UTF-8."""
        characters, tokens = int(self.automaton.characters[state]), self.tokens
        if characters <= INSIDE:
            return tokens.well_formed
        clean = np.zeros(len(tokens.ids), dtype=np.bool_)
        clean[tokens.inner] = tokens.completes[characters]
        return clean

    def _after_places(self, state: int) -> npt.NDArray[np.int16]:
        """The state after each token, by its place in the token texts."""
        if state == OUTSIDE:
            return self._from_outside
        # Most first bytes lead where they lead from the beginning, and so does all that follows.
        table, found, groups = self.automaton.table, self.automaton.found, self.tokens.group_starts
        reached: npt.NDArray[np.int16] = self._from_outside.copy()
        others = np.flatnonzero(table[state] != table[OUTSIDE])
        for run in np.split(others, np.flatnonzero(np.diff(others) > 1) + 1):
            if len(run) == 0 or groups[run[0]] == groups[run[-1] + 1]:
                continue
            places = slice(int(groups[run[0]]), int(groups[run[-1] + 1]))
            all_found = (table[state, run] == found).all()
            reached[places] = found if all_found else self.tokens.walk(table, np.array([state]), places)[0]
        return reached

    @functools.cached_property
    def _from_outside(self) -> npt.NDArray[np.int16]:
        reached: npt.NDArray[np.int16] = self.tokens.walk(self.automaton.table, np.array([OUTSIDE]))[0]
        return reached


def _read_only(ids: Ids) -> Ids:
    ids = np.sort(ids)
    ids.flags.writeable = False
    return ids
