"""How much of each corpus an epoch has: all of all, or shares of its own for each."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from transformer.data.preparation.arrow import IntArray


def shares_of(
    names: Sequence[str], sizes: Sequence[int | None], weights: Mapping[str, float] | None, temperature: float | None
) -> list[float] | None:
    """The share of each corpus in the examples, adding up to 1; None where each has all of its examples.

    Args:
        names: the corpora.
        sizes: their numbers of examples, or None where a number is not known.
        weights: shares in any unit.
        temperature: T gives shares proportional to ``size ** (1 / T)`` (Arivazhagan et al. 2019).

    Raises:
        ValueError: a size is needed and not known, or there is to be a share of nothing.
    """
    if weights is not None:
        values = [weights[name] for name in names]
    elif temperature is None or len(names) == 1:
        return None
    else:
        values = [known_size(name, size) ** (1 / temperature) for name, size in zip(names, sizes, strict=True)]
    if 0 in sizes:
        raise ValueError(f"no training example of the corpus {names[sizes.index(0)]!r} is left to mix.")
    return [value / math.fsum(values) for value in values]


def known_size(name: str, size: int | None) -> int:
    """The size, if it is known."""
    if size is None:
        raise ValueError(
            f"the number of examples of the corpus {name!r} is not known before they are all read; give `data.weights`."
        )
    return size


class Epochs:
    """Which examples every epoch has, of several corpora that are numbered one after another.

    Without shares, all examples. With shares, an epoch has as many examples as there are in all, but of each corpus its
    share: the next ones of an endless sequence of passes over the corpus, each pass in an order of its own. So a corpus
    is used up before any of its examples comes again.

    Args:
        sizes: numbers of examples.
        shares: of each corpus, adding up to 1, or None.
        seed: decides the orders.
        numbers_N: what the examples are called, if not 0, 1, 2, ...

    Attributes:
        all_alike: whether every epoch has the same examples.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        shares: Sequence[float] | None,
        seed: int,
        numbers_N: IntArray | None = None,
    ) -> None:
        self.sizes, self.shares, self.seed, self.numbers_N = list(sizes), shares, seed, numbers_N
        self.all_alike = shares is None
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).tolist()

    def examples(self, epoch: int) -> IntArray:
        """The numbers of the examples of an epoch."""
        places = self._places(epoch)
        return places if self.numbers_N is None else self.numbers_N[places]

    def _places(self, epoch: int) -> IntArray:
        total = self.starts[-1]
        if self.shares is None:
            return np.arange(total)
        parts = []
        for corpus, (size, share) in enumerate(zip(self.sizes, self.shares, strict=True)):
            count = max(1, round(total * share))
            parts.append(self.starts[corpus] + self._next(corpus, size, epoch * count, (epoch + 1) * count))
        return np.concatenate(parts)

    def _next(self, corpus: int, size: int, start: int, stop: int) -> IntArray:
        """Examples number `start` to `stop` of the endless sequence of one corpus."""
        passes = []
        for number in range(start // size, (stop - 1) // size + 1):
            order = np.random.default_rng((self.seed, corpus, number)).permutation(size)
            passes.append(order[max(start - number * size, 0) : stop - number * size])
        return np.concatenate(passes)
