"""What a user demands of single outputs, made into what searches understand."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformer.data.subwords.token_bytes import token_bytes
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.interface import Request
from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.terms import BannedPhrases, RequiredTerms
from transformer.decoding.token_texts import TokenTexts

log = logging.getLogger(__name__)

KEPT_MATCHERS = 512  # phrases that are prepared once and kept


@dataclass(frozen=True)
class Constraints:
    """Demands on one output. Phrases are matched in its text as whole words, however it is cut into tokens.

    Attributes:
        required: terms that must occur, each as the alternatives of which one is enough.
        ordered: whether they must occur in the given order.
        banned: phrases that must not occur.
        prefix: what the output begins with.
    """

    required: tuple[tuple[str, ...], ...] = ()
    ordered: bool = False
    banned: tuple[str, ...] = ()
    prefix: str = ""


NO_CONSTRAINTS = Constraints()


class ConstraintCompiler:
    """Turns :class:`Constraints` into parts of a :class:`Request`, for one vocabulary.

    Args:
        tokenizer: of the outputs.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: TokenTexts | None = None  # made when the first phrase comes
        self._matcher = functools.lru_cache(KEPT_MATCHERS)(self._new_matcher)

    def apply(self, request: Request, constraints: Constraints, longest: int) -> Request:
        """The request with the demands added, and more tokens allowed if required phrases need them.

        Args:
            request: lengths and line.
            constraints: of the same line.
            longest: tokens that the model can give at most.

        Raises:
            ValueError: naming the line, if the demands contradict each other, cannot be spelt or do not fit.
        """
        if constraints == NO_CONSTRAINTS:
            return request
        try:
            prefix = self._prefix(constraints.prefix)
            required, banned, bans = None, None, [self._matcher((phrase,)) for phrase in constraints.banned]
            if bans:
                _check_prefix(constraints.prefix, prefix, bans)
                banned = BannedPhrases(bans)
            if constraints.required:
                terms = [_permitted(term, bans) for term in constraints.required]
                required = RequiredTerms([self._matcher(term) for term in terms], ordered=constraints.ordered)
        except ValueError as error:
            raise ValueError(f"line {request.line}: {error}") from error
        need = len(prefix) + 1
        if required is not None:
            need += required.need(functools.reduce(required.advance, prefix, required.start()))
        if need > longest:
            raise ValueError(
                f"line {request.line}: the prefix and the required phrases need {need} tokens, but an output can have "
                f"{longest} at most."
            )
        return replace(request, limit=max(request.limit, need), prefix=prefix, required=required, banned=banned)

    def _prefix(self, text: str) -> tuple[int, ...]:
        """The tokens of what an output begins with."""
        tokens = tuple(self._tokenizer.encode(text))
        if self._tokenizer.unk_id in tokens:
            raise ValueError(f"The vocabulary cannot spell the prefix {text!r}.")
        return tokens

    def _new_matcher(self, alternatives: tuple[str, ...]) -> PhraseMatcher:
        if self._texts is None:
            self._texts = TokenTexts(token_bytes(self._tokenizer))
        return PhraseMatcher(self._texts, alternatives)


def check_one_for_each(what: str, given: Sequence[object], texts: Sequence[str]) -> None:
    """Refuse settings of single texts that are not as many as the texts. Raises ValueError."""
    if len(given) != len(texts):
        raise ValueError(f"`{what}` must be given for each of {len(texts)} texts, but are for {len(given)}.")


def warn_of_unmet(requests: Sequence[Request], finished: Sequence[bool]) -> None:
    """Say which outputs were cut by the limit although phrases were required of them."""
    for request, ended in zip(requests, finished, strict=True):
        if request.required is not None and not ended:
            log.warning(
                "line %d: the output was cut by its length limit; required phrases may be missing.", request.line
            )


def _check_prefix(text: str, prefix: Sequence[int], bans: Sequence[PhraseMatcher]) -> None:
    """Refuse a prefix with a banned phrase. Raises ValueError."""
    for ban in bans:
        state = ban.start
        for token in prefix:
            if token in ban.forbidden(state):
                raise ValueError(f"The prefix {text!r} must not have the banned phrase {ban.name}.")
            state = ban.advance(state, token)


def _permitted(term: tuple[str, ...], bans: Sequence[PhraseMatcher]) -> tuple[str, ...]:
    """The alternatives that have no banned phrase: a search would try in vain to spell the others."""
    permitted = tuple(text for text in term if not any(ban.is_in(text.strip()) for ban in bans))
    if term and not permitted:
        names = " or ".join(map(repr, term))
        raise ValueError(f"The required phrase {names} must not have a banned phrase, but has one.")
    return permitted
