"""What searches are compared with: all outputs that a small model can give, each looked at by itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from transformer.decoding.config import BeamConfig

Tokens = tuple[int, ...]
Output = tuple[bool, float, Tokens, float]
"""Whether it is cut, minus its score, its tokens and its log probability."""


def _in_order(text: str, terms: Sequence[Sequence[str]], begin: int = 0) -> bool:
    if not terms:
        return True
    for phrase in terms[0]:
        for place in range(begin, len(text) - len(phrase) + 1):
            end = place + len(phrase)
            inside_word = text[:place][-1:].isalpha() and phrase[0].isalpha()
            inside_word |= text[end:][:1].isalpha() and phrase[-1].isalpha()
            if text[place:end] == phrase and not inside_word and _in_order(text, terms[1:], end):
                return True
    return False


def _has_terms(text: str, terms: Sequence[tuple[str, ...]], *, ordered: bool) -> bool:
    if ordered:
        return _in_order(text, terms)
    return all(_in_order(text, [term] * count) for term, count in Counter(terms).items())


@pytest.fixture(scope="session")
def has_terms() -> Callable[..., bool]:
    """Whether terms, each of several phrases, are in a text as whole words, one after another if they are ordered.

    All places are tried. A term that is given twice must be there twice.
    """
    return _has_terms


def _gains(logits_V: np.ndarray, beginning: Tokens, repetition_penalty: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    ranked_V = logits_V.astype(np.float64)
    own_V = ranked_V - np.logaddexp.reduce(ranked_V)
    for token in set(beginning):
        ranked_V[token] *= 1 / repetition_penalty if ranked_V[token] > 0 else repetition_penalty
    return ranked_V - np.logaddexp.reduce(ranked_V), own_V


@pytest.fixture(scope="session")
def gains() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Log probabilities of each token after a beginning: what a search ranks by, and the model's own."""
    return _gains


def _may_follow(beginning: Tokens, token: int, config: Any, demand: Any, suppressed: Sequence[int]) -> bool:
    length, size = len(beginning), config.no_repeat_ngram
    if length < len(demand.prefix):
        return bool(token == demand.prefix[length])
    if token == 0:
        return bool(length >= demand.minimum)
    if size is not None:
        ngram = (*beginning, token)[-size:]
        if any(beginning[place : place + size] == ngram for place in range(length - size + 1)):
            return False
    return token not in suppressed


@pytest.fixture(scope="session")
def all_outputs() -> Callable[..., list[Output]]:
    """All outputs that obey a demand, best first; token 0 ends them.

    Of ``(logits, coverage, texts, config, demand, suppressed)``: what the model says after each beginning, and the sum
    over the source tokens of the logarithm of the attention they got by then, 1 at most; the bytes of each token; the
    search; what is asked for (``limit``, ``minimum``, ``prefix``, ``terms``, ``ordered``, ``banned``).
    """

    def outputs(
        logits: Mapping[Tokens, np.ndarray],
        coverage: Mapping[Tokens, float],
        texts: Sequence[bytes | None],
        config: BeamConfig,
        demand: Any,
        suppressed: Sequence[int] = (),
    ) -> list[Output]:
        found: list[Output] = []

        def keep(beginning: Tokens, last: int, total: float, own: float) -> None:
            tokens = (*beginning, last) if last else beginning
            text = b"".join(texts[token] or b"" for token in tokens).decode()
            if any(_in_order(text, [(phrase,)]) for phrase in demand.banned):
                return
            if last == 0 and not _has_terms(text, demand.terms, ordered=demand.ordered):
                return
            length = len(beginning) + 1
            base = length if config.normalization == "average" else (5 + length) / 6
            score = total / base**config.length_penalty + config.coverage_penalty * coverage.get(beginning, 0.0)
            found.append((last != 0, -score, tokens, own))

        def extend(beginning: Tokens, total: float, own: float) -> None:
            ranked_V, own_V = _gains(logits[beginning], beginning, config.repetition_penalty)
            for token, gain in enumerate(ranked_V.tolist()):
                if gain == -math.inf or not _may_follow(beginning, token, config, demand, suppressed):
                    continue
                sums = total + gain, own + float(own_V[token])
                if token == 0 or len(beginning) + 1 == demand.limit:
                    keep(beginning, token, *sums)
                else:
                    extend((*beginning, token), *sums)

        extend((), 0.0, 0.0)
        return sorted(found)

    return outputs
