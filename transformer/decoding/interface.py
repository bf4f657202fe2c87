"""What a search needs of a model, and what it gives back."""

from typing import NamedTuple, Protocol

from torch import Tensor


class StepModel(Protocol):
    """One decoding session over N examples; made anew for every call, so nothing is left over from the last.

    Rows are beginnings of outputs. The model keeps whatever it needs to continue the rows of its last answer.
    """

    def start(self) -> Tensor:
        """Logits (N, V) of each example's first token. Called once."""

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        """Logits (M, V) after M continued rows.

        Args:
            tokens_M: the token appended to each row.
            parents_M: which row of the previous call each row continues; rows may be repeated, reordered and left out.
        """


class Hypothesis(NamedTuple):
    """One output of a search.

    Attributes:
        tokens: ids without the end token.
        log_probability: sum of the tokens' natural log probabilities, the end token's included if there is one.
        score: what the search ranks by (length-normalised for a beam).
        finished: whether the model ended it; otherwise the length limit did.
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
