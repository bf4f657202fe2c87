"""Terms that an output must have, and phrases that it must not have."""

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from transformer.decoding.phrases import Ids, PhraseMatcher
from transformer.decoding.term_chain import ChainState, TermChain

TermsState = tuple[ChainState, ...]
BansState = tuple[int, ...]

_REMEMBERED = 4096


class RequiredTerms:
    """Phrases that must all be in an output. A state is a plain value; each beginning of an output has one.

    Unordered terms may overlap: "a b" and "b c" are both in "a b c". A term that is given twice must be there twice,
    the two without overlap; and so must ordered terms stand one after the other.

    A search meets them within any limit of at least ``need(start)`` tokens: as long as `need` is less than the tokens
    that are left it may take any token, then one of `urgent` each time, until `met_at_end`. Other rules may forbid
    these tokens, though: banned phrases and ``no_repeat_ngram`` can make a term impossible. The output then ends
    without it, unfinished, and translating or generating warns.

    For each chain of terms (an unordered term with its repetitions, or all ordered ones) there are tokens that bring
    the text nearer to it:

    - With several chains not yet found for good, `need` is the least sum of what one needs to be there whatever
      follows, and the most that each of the others can need anywhere. Its own tokens lower the first part. What they do
      to the others is no matter: the most that they can need never grows.
    - With one such chain, `need` is what it needs to be there if the output ended then. As that is never more than the
      most it can need to be there whatever follows, `need` falls as well when the last but one is found.

    Args:
        matchers: One a term, all of the same token texts.
        ordered: Whether the terms must come in this order.

    Raises:
        ValueError: The vocabulary cannot spell a term, or nothing could follow it and something must.
    """

    def __init__(self, matchers: Sequence[PhraseMatcher], *, ordered: bool) -> None:
        groups = [tuple(matchers)] if ordered and matchers else _repetitions(matchers)
        self._chains = [TermChain(group, alone=len(groups) == 1) for group in groups]
        # Rows of a search have mostly states that other rows had before.
        self._remembered_advance = functools.lru_cache(_REMEMBERED)(self._advance)
        self._remembered_need = functools.lru_cache(_REMEMBERED)(self._need)
        self._remembered_forced = functools.lru_cache(_REMEMBERED)(self._forced)

    def start(self) -> TermsState:
        """The state of an output without tokens."""
        return tuple(chain.start for chain in self._chains)

    def advance(self, state: TermsState, token: int) -> TermsState:
        """The state after one more token."""
        return self._remembered_advance(state, token)

    def met_at_end(self, state: TermsState) -> bool:
        """Whether all terms are in the output if it ends here, so that the end token may be taken."""
        return all(chain.met_at_end(part) for chain, part in zip(self._chains, state, strict=True))

    def progress(self, state: TermsState) -> int:
        """How many tokens of the terms are there: the bank of dynamic beam allocation (Post & Vilar 2018)."""
        return sum(chain.progress(part) for chain, part in zip(self._chains, state, strict=True))

    def need(self, state: TermsState) -> int:
        """Tokens that are surely enough to meet all terms, the end token not counted; 0 if they are met."""
        return self._remembered_need(state)[0]

    def urgent(self, state: TermsState) -> Ids:
        """The tokens each of which lowers :meth:`need`; some unless it is 0."""
        _, number = self._remembered_need(state)
        if number is None:
            return _NO_IDS
        return self._chains[number].nearer(state[number], at_end=self._num_open(state) == 1)

    def forced(self, state: TermsState) -> tuple[Ids, ...]:
        """Groups of tokens that a search should try beside the most probable ones; of each group one is enough.

        There is one for each term that is not there, of ordered terms for the next one: the tokens that bring it
        nearer. And there is :meth:`urgent`, where it is none of these.
        """
        return self._remembered_forced(state)

    def lasting(self, state: TermsState) -> Ids:
        """Where all terms are there if the output ends: tokens after which they are there whatever follows.

        None where they are already, or where the vocabulary has no such tokens.
        """
        for chain, part in zip(self._chains, state, strict=True):
            if not chain.is_found(part):  # what ends its last word ends that of any other chain, too
                return chain.nearer(part, at_end=False)
        return _NO_IDS

    def _advance(self, state: TermsState, token: int) -> TermsState:
        return tuple(chain.advance(part, token) for chain, part in zip(self._chains, state, strict=True))

    def _num_open(self, state: TermsState) -> int:
        return sum(not chain.is_found(part) for chain, part in zip(self._chains, state, strict=True))

    def _need(self, state: TermsState) -> tuple[int, int | None]:
        """The need, and the number of the chain whose tokens lower it."""
        if self.met_at_end(state):
            return 0, None
        at_end = self._num_open(state) == 1
        open_chains = [number for number, chain in enumerate(self._chains) if not chain.is_found(state[number])]
        needs = {number: self._chains[number].need(state[number], at_end=at_end) for number in open_chains}
        most = {number: self._chains[number].largest_need(state[number]) for number in open_chains}
        first = min(open_chains, key=lambda number: needs[number] - most[number])
        return needs[first] + sum(most.values()) - most[first], first

    def _forced(self, state: TermsState) -> tuple[Ids, ...]:
        groups = [
            chain.nearer(part, at_end=True)
            for chain, part in zip(self._chains, state, strict=True)
            if not chain.met_at_end(part)
        ]
        urgent = self.urgent(state)
        if len(urgent) > 0 and not any(np.array_equal(urgent, group) for group in groups):
            groups.append(urgent)
        return tuple(groups)


class BannedPhrases:
    """Phrases that must not be in an output. A state is a plain value; each beginning of an output has one.

    Args:
        matchers: One a phrase.
    """

    def __init__(self, matchers: Sequence[PhraseMatcher]) -> None:
        self._matchers = tuple(matchers)
        self._remembered_advance = functools.lru_cache(_REMEMBERED)(self._advance)
        self._remembered_forbidden = functools.lru_cache(_REMEMBERED)(self._forbidden)
        self._remembered_cut_forbidden = functools.lru_cache(_REMEMBERED)(self._cut_forbidden)

    def start(self) -> BansState:
        """The state of an output without tokens."""
        return tuple(matcher.start for matcher in self._matchers)

    def advance(self, state: BansState, token: int) -> BansState:
        """The state after one more token."""
        return self._remembered_advance(state, token)

    def forbidden(self, state: BansState) -> Ids:
        """Tokens that bring a phrase into the output, or make it unavoidable."""
        return self._remembered_forbidden(state)

    def end_forbidden(self, state: BansState) -> bool:
        """Whether a phrase would be in the output if it ended here."""
        return any(matcher.accepted_at_end(part) for matcher, part in zip(self._matchers, state, strict=True))

    def cut_forbidden(self, state: BansState) -> Ids:
        """Tokens that must not be the last of an output that the limit cuts: a phrase would be in it then."""
        return self._remembered_cut_forbidden(state)

    def _advance(self, state: BansState, token: int) -> BansState:
        return tuple(matcher.advance(part, token) for matcher, part in zip(self._matchers, state, strict=True))

    def _forbidden(self, state: BansState) -> Ids:
        ids = [matcher.forbidden(part) for matcher, part in zip(self._matchers, state, strict=True)]
        return functools.reduce(np.union1d, ids, _NO_IDS)

    def _cut_forbidden(self, state: BansState) -> Ids:
        ids = []
        for matcher, part in zip(self._matchers, state, strict=True):
            reached = matcher.step(part)
            open_states = [after for after in np.unique(reached).tolist() if matcher.accepted_at_end(after)]
            ids.append(np.isin(reached, open_states).nonzero()[0])
        return functools.reduce(np.union1d, ids, _NO_IDS)


def _repetitions(matchers: Sequence[PhraseMatcher]) -> list[tuple[PhraseMatcher, ...]]:
    """The same terms together."""
    counts: Counter[tuple[frozenset[str], bool]] = Counter()
    first: dict[tuple[frozenset[str], bool], PhraseMatcher] = {}
    for matcher in matchers:
        key = frozenset(matcher.alternatives), matcher.whole_words
        counts[key] += 1
        first.setdefault(key, matcher)
    return [(first[key],) * count for key, count in counts.items()]


_NO_IDS: Ids = np.array([], dtype=np.int64)
_NO_IDS.flags.writeable = False
