"""How many tokens it takes to bring a phrase into the text, from wherever the text is."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from transformer.decoding.phrase_automaton import PhraseAutomaton
from transformer.decoding.token_texts import TokenTexts
from transformer.decoding.word_characters import INSIDE, OUTSIDE

NEVER = -1


class TokenGraph:
    """From which state of an automaton a token leads to which.

    Args:
        automaton: reads bytes.
        tokens: the vocabulary.
        after_places: (N,) the states after all tokens from a state between two characters, by place.

    Attributes:
        all_edges: (states, states) whether some token leads from the first to the second.
        clean_edges: the same for tokens that keep to UTF-8.
    """

    def __init__(
        self, automaton: PhraseAutomaton, tokens: TokenTexts, after_places: Callable[[int], npt.NDArray[np.int16]]
    ) -> None:
        size = len(automaton.table)
        self.all_edges = np.zeros((size, size), dtype=np.bool_)
        self.clean_edges = np.zeros((size, size), dtype=np.bool_)
        # After a phrase that waits for the end of its word, the text is inside of this word.
        between = (automaton.characters == INSIDE) | ((automaton.characters == OUTSIDE) & ~automaton.waiting)
        between[automaton.found] = False
        for state in np.flatnonzero(between).tolist():
            reached = after_places(state)
            self.all_edges[state, reached] = True
            self.clean_edges[state, reached[tokens.well_formed]] = True
        # States inside of a character are many, but alike: a token that begins a character breaks the one that is
        # begun, ends the wait for a word's end, and else does what it does outside of words.
        within = np.flatnonzero(automaton.characters > INSIDE)
        outer = np.ones(len(tokens.ids), dtype=np.bool_)
        outer[tokens.inner] = False
        if outer.any():
            waiting = automaton.waiting[within]
            self.all_edges[within[waiting], automaton.found] = True
            after_break = np.zeros(size, dtype=np.bool_)
            after_break[after_places(OUTSIDE)[outer]] = True
            self.all_edges[within[~waiting]] = after_break
        inner = tokens.walk(automaton.table, within, tokens.inner)
        self.all_edges[within[:, None], inner] = True
        rows, columns = np.nonzero(tokens.completes[automaton.characters[within]])
        self.clean_edges[within[rows], inner[rows, columns]] = True

    def reachable(self, start: int) -> npt.NDArray[np.bool_]:
        """(states,) where some tokens, or none, lead to from `start`."""
        reached = np.zeros(len(self.all_edges), dtype=np.bool_)
        reached[start] = True
        new = reached
        while new.any():
            new = self.all_edges[new].any(axis=0) & ~reached
            reached = reached | new
        return reached

    def distances(self, goals: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The number of tokens it takes to come from each state to a goal.

        Ways of tokens that keep to UTF-8 come first, even if breaking a character would be shorter; from where there is
        none, the shortest of all others counts.

        Args:
            goals: (states,) which are goals.

        Returns:
            (states,) least numbers of tokens, NEVER where there is no way, and (states,) whether the way is clean.
        """
        distances = np.where(goals, 0, NEVER)
        self._extend(distances, self.clean_edges)
        clean = distances != NEVER
        self._extend(distances, self.all_edges)
        return distances, clean

    @staticmethod
    def _extend(distances: npt.NDArray[np.int64], edges: npt.NDArray[np.bool_]) -> None:
        """Give a distance to all states without one from which `edges` lead to those with one."""
        distance = 0
        while (distances >= distance).any():
            nearer = edges[:, distances == distance].any(axis=1)
            distances[nearer & (distances == NEVER)] = distance + 1
            distance += 1
