"""What a search needs of a model, what it is asked for, and what it gives back."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from transformer.decoding.terms import BannedPhrases, RequiredTerms


class StepModel(Protocol):
    """One decoding session over N examples; made anew for every call, so nothing is left over from the last.

    Rows are beginnings of outputs. The model keeps whatever it needs to continue the rows of its last answer. It does
    not use its logits again: a search may write into them.
    """

    def start(self) -> Tensor:
        """Logits (N, V) of each example's first token. Called once."""

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        """Logits (M, V) after M continued rows.

        Args:
            tokens_M: the token appended to each row, on the CPU.
            parents_M: which row of the previous call each row continues, on the CPU; rows may be repeated, reordered
                and left out. Cheapest where most rows stay where they are.
        """


class AttendingStepModel(StepModel, Protocol):
    """A session that also tells what its last answer looked at in the source; a coverage penalty needs it."""

    def attention(self) -> Tensor:
        """Weights (M, S) of the last call, summing to 1 over the source tokens; infinite for padding."""


@dataclass(frozen=True)
class Request:
    """What is asked for one example.

    Attributes:
        limit: tokens at most, the end token included.
        minimum: tokens at least before the end token.
        line: number of the example in the user's input; decides its random draws.
        prefix: tokens that the output begins with.
        required: what must stand in the output, or None; only a beam can see to it.
        banned: what must not, or None.
    """

    limit: int
    minimum: int = 0
    line: int = 1
    prefix: tuple[int, ...] = ()
    required: RequiredTerms | None = None
    banned: BannedPhrases | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is demanded but lengths."""
        return not self.prefix and self.required is None and self.banned is None


class Hypothesis(NamedTuple):
    """One output of a search.

    Attributes:
        tokens: ids without the end token.
        log_probability: sum of the tokens' natural log probabilities, the end token's included if there is one.
        score: what the search ranks by (length-normalised for a beam).
        finished: whether the model ended it; otherwise the length limit did.
        token_log_probabilities: of each token, and of the end token if there is one.
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    token_log_probabilities: list[float]
