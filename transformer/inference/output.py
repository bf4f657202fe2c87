"""What a search gives back, as text."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.interface import Hypothesis


class Output(NamedTuple):
    """One output of a search.

    Attributes:
        text: on one line for translations.
        tokens: the ids behind it, without the end token.
        log_probability: the natural logarithm of the output's probability, its end token included.
        score: what the search ranked by.
        finished: whether the model ended it; otherwise the length limit did.
        token_log_probabilities: of each token, and of the end token if there is one.
    """

    text: str
    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    token_log_probabilities: list[float]


BLANK = Output("", [], 0.0, 0.0, True, [])


def outputs_of(hypotheses: Sequence[Sequence[Hypothesis]], tokenizer: Tokenizer) -> list[list[Output]]:
    """The texts of the hypotheses of each example."""
    texts = iter(tokenizer.decode_batch([hypothesis.tokens for best in hypotheses for hypothesis in best]))
    return [[Output(next(texts), *hypothesis) for hypothesis in best] for best in hypotheses]
