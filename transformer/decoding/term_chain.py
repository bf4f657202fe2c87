"""Phrases that must be in the output one after another."""

from collections.abc import Sequence

from transformer.decoding.phrases import Distances, Ids, PhraseMatcher
from transformer.decoding.token_graph import NEVER
from transformer.decoding.word_characters import INSIDE, word_characters

ChainState = tuple[int, int, int]
"""How many terms are found; the state of the next one; the state of the one after it from the end of the next one on,
while the next one is read to its end and the end of its word is not yet seen, else NOT_BEGUN."""

NOT_BEGUN = -1


class TermChain:
    """Looks for terms one after another, each from where the one before ends.

    Each is taken where it ends first: so, if they are in the text one after another at all, they are found. They may
    share no letter, but the space between them.

    Args:
        matchers: Of the terms, at least one.
        alone: Whether there is nothing else to be found, so that the output may end with the last term.

    Attributes:
        start: The state of an output without tokens.

    Raises:
        ValueError: The vocabulary cannot spell a term, or nothing could follow it and something must.
    """

    def __init__(self, matchers: Sequence[PhraseMatcher], *, alone: bool) -> None:
        self._matchers = tuple(matchers)
        self._num_terms = len(self._matchers)
        self._tokens = self._matchers[0].tokens
        self._following = word_characters().next
        # One element at a time, these are faster than arrays.
        self._tables = [matcher.automaton.table.data for matcher in self._matchers]
        self._waiting = [matcher.automaton.waiting.tolist() for matcher in self._matchers]
        self.start: ChainState = (0, self._matchers[0].start, NOT_BEGUN)
        self._lengths = [matcher.distance(matcher.start) for matcher in self._matchers]
        for matcher in self._matchers[:-1] if alone else self._matchers:
            if matcher.to_accepted.largest == NEVER:
                raise ValueError(
                    f"The vocabulary has no token that could stand between the phrase {matcher.name} and others."
                )
        self._enough_at_end = self._enough(at_end=True)
        self._enough_for_good = self._enough(at_end=False)

    def advance(self, state: ChainState, token: int) -> ChainState:
        """The state after one more token."""
        for byte in self._tokens[token]:
            if state[0] == self._num_terms:
                break
            state = self._after_byte(state, byte)
        return state

    def met_at_end(self, state: ChainState) -> bool:
        """Whether all terms are in the text if it ends here."""
        found, current, _ = state
        last = self._num_terms - 1
        return found > last or (found == last and self._matchers[last].accepted_at_end(current))

    def is_found(self, state: ChainState) -> bool:
        """Whether all terms are in the text whatever follows."""
        return state[0] == self._num_terms

    def need(self, state: ChainState, *, at_end: bool) -> int:
        """Tokens that are enough to bring all terms into the text, 0 if they are there.

        Args:
            state: Of this output.
            at_end: Whether it is to end then; False means whatever follows.
        """
        found, current, _ = state
        if self.is_found(state):
            return 0
        enough = self._enough_at_end if at_end else self._enough_for_good
        return int(self._goal(found, at_end=at_end).tokens[current]) + enough[found + 1]

    def largest_need(self, state: ChainState) -> int:
        """The most that :meth:`need` can be, whatever follows, here and after any further tokens."""
        return self._enough_for_good[state[0]]

    def nearer(self, state: ChainState, *, at_end: bool) -> Ids:
        """The tokens that lower :meth:`need` as they bring the next term nearer; there are some unless it is 0."""
        found, current, _ = state
        return self._matchers[found].nearer(current, self._goal(found, at_end=at_end))

    def _goal(self, number: int, *, at_end: bool) -> Distances:
        matcher = self._matchers[number]
        return matcher.to_accepted_at_end if at_end and number + 1 == self._num_terms else matcher.to_accepted

    def _enough(self, *, at_end: bool) -> list[int]:
        """Tokens that bring each term and all after it into the text, wherever it is; 0 after the last."""
        largest = [self._goal(number, at_end=at_end).largest for number in range(self._num_terms)]
        return [sum(largest[number:]) for number in range(self._num_terms + 1)]

    def progress(self, state: ChainState) -> int:
        """How many tokens of the terms are there: those of the terms found, and of the beginning of the next one."""
        found, current, _ = state
        done = sum(self._lengths[:found])
        if found < self._num_terms:
            done += max(self._lengths[found] - self._matchers[found].distance(current), 0)
        return done

    def _after_byte(self, state: ChainState, byte: int) -> ChainState:
        found, before, follower = state
        current = self._tables[found][before, byte]
        automaton = self._matchers[found].automaton
        if current != automaton.found and not self._waiting[found][current]:
            return found, current, NOT_BEGUN  # nearly always
        characters = int(self._following[automaton.characters[before], byte])
        if follower != NOT_BEGUN:
            follower = self._tables[found + 1][follower, byte]
        # Twice, if the byte ends both the word of a term and the term after it, such as a full stop.
        while current == automaton.found:
            found += 1
            if found == self._num_terms:
                return found, 0, NOT_BEGUN
            automaton = self._matchers[found].automaton
            current, follower = (characters if follower == NOT_BEGUN else follower), NOT_BEGUN
        if not automaton.waiting[current] or found + 1 == self._num_terms:
            follower = NOT_BEGUN
        elif automaton.characters[current] == INSIDE:  # else the character that decides is not yet complete
            follower = INSIDE
        return found, current, follower
