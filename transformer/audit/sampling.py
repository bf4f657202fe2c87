"""How much an audit looks at: everything of a small model, a sample of a large one, and it says so."""

from dataclasses import dataclass

from torch import nn

from transformer.audit.model import AuditedModel

# Multiplications that the one pass over a long sequence may take: about a second on a slow processor.
LONG_PASS = 4e9
LARGE = 20_000_000  # parameters above which positions are sampled
HUGE = 400_000_000  # parameters above which a copy in float64 takes too much memory


@dataclass(frozen=True)
class Sampling:
    """Sizes of the inputs, and how many of all possible changes are tried.

    Attributes:
        rows: in a batch.
        target_length, source_length: of the short inputs, in tokens; they differ.
        padding: tokens of padding added at most.
        long_length: of the one long input, or None where the short ones are as long.
        long_positions: positions changed there.
        positions: changed in the short inputs at most; all of them where there are no more.
        split_length: tokens that are split in every way to be decoded with a cache.
        blocks_in_turn: whether sublayers are put to zero one by one, or all at once.
        num_labels: labels tried at one place.
        exact: whether outputs are compared in float64.
    """

    rows: int
    target_length: int
    source_length: int
    padding: int
    long_length: int | None
    long_positions: int
    positions: int
    split_length: int
    blocks_in_turn: bool
    num_labels: int
    exact: bool

    @classmethod
    def of(cls, model: AuditedModel, *, quick: bool) -> "Sampling":
        """Sizes that suit a model.

        Args:
            model: what is audited.
            quick: a few seconds at most.
        """
        size, longest = num_parameters(model.module), model.max_length
        small = size <= LARGE
        thorough = small and not quick
        # The start of a large model's training has no room for copies in float64, and no time for many passes.
        hasty = quick and not small
        target = min(longest - 1, 8 if thorough else 4 if hasty else 5)
        reach = min(longest, int(LONG_PASS / max(1, size)))
        return cls(
            rows=2 if hasty else 3,
            target_length=target,
            source_length=target - 1,
            padding=min(1 if hasty else 3, longest - target),
            long_length=None if quick or reach < target + 4 else reach,
            long_positions=4,
            positions=7 if small else 2,
            split_length=min(5 if thorough else 3, target),
            blocks_in_turn=thorough,
            num_labels=min(16 if thorough else 6, model.vocab_size - 1),
            exact=not hasty and size <= HUGE,
        )

    def notes(self, model: AuditedModel) -> list[str]:
        """What was not looked at, one sentence each."""
        found = []
        longest = self.target_length if self.long_length is None else self.long_length
        if longest < model.max_length:
            found.append(f"the longest sequence tried has {longest:,} of {model.max_length:,} tokens")
        if self.positions < self.target_length - 1:
            found.append(f"{self.positions} of {self.target_length - 1} positions of a short sequence were changed")
        if self.long_length is not None:
            found.append(f"{self.long_positions} of {self.long_length - 1:,} positions of a long sequence were changed")
        if self.num_labels < model.vocab_size - 1:
            found.append(f"ids are drawn at random; {self.num_labels} of {model.vocab_size:,} labels were tried")
        if not self.exact:
            found.append("the model is large, so outputs were compared in float32")
        return found


def num_parameters(module: nn.Module) -> int:
    """Tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def spread(count: int, first: int, last: int) -> list[int]:
    """So many whole numbers from ``first`` to ``last``, evenly spread and both of them in; all if there are no more."""
    if last - first + 1 <= count:
        return list(range(first, last + 1))
    return [first + round(place * (last - first) / (count - 1)) for place in range(count)]
