"""Which extensions get the places of a beam."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Extensions(NamedTuple):
    """Possible one-token extensions X of the rows of a beam, of any example each.

    Attributes:
        owner_X: whose places they compete for: their example, or one of its groups.
        parent_X: the row that each extends.
        rank_X: that row's rank within its example; with the token it decides between equal totals, so that results
            do not depend on how rows are arranged.
        token_X: ids.
        total_X: log probability of the row with this token, as the search ranks it; always finite.
    """

    owner_X: np.ndarray
    parent_X: np.ndarray
    rank_X: np.ndarray
    token_X: np.ndarray
    total_X: np.ndarray

    def take(self, places_X: np.ndarray) -> "Extensions":
        """Those at the given places."""
        return Extensions(*(field[places_X] for field in self))


def best_of_each(extensions: Extensions, places_O: np.ndarray) -> np.ndarray:
    """The places (in the arrays) of each owner's best extensions, ``places_O[o]`` of them, best first."""
    order_X = np.lexsort((extensions.token_X, extensions.rank_X, -extensions.total_X, extensions.owner_X))
    owner_X = extensions.owner_X[order_X]
    counts_O = np.bincount(owner_X, minlength=len(places_O))
    rank_X = np.arange(len(order_X)) - (counts_O.cumsum() - counts_O)[owner_X]
    best_Y: np.ndarray = order_X[rank_X < places_O[owner_X]]
    return best_Y


def diverse_groups(
    extensions: Extensions, group_X: np.ndarray, places_G: Sequence[np.ndarray], diversity: float
) -> np.ndarray:
    """Diverse beam search (Vijayakumar et al. 2018), Hamming diversity.

    Group after group chooses; a token loses ``diversity`` for every time an earlier group has just chosen it. The loss
    decides about places only: totals stay those of the model.

    Args:
        extensions: owners are examples.
        group_X: the group whose places each competes for.
        places_G: free places of each example, for each group.
        diversity: see above.
    """
    chosen: list[np.ndarray] = []
    width = int(extensions.token_X.max(initial=0)) + 1
    keys_X = extensions.owner_X * width + extensions.token_X
    taken = np.empty(0, dtype=np.int64)
    for group, places_O in enumerate(places_G):
        members_Y = (group_X == group).nonzero()[0]
        own = extensions.take(members_Y)
        if len(taken):
            times_Y = (keys_X[members_Y][:, None] == taken[None]).sum(1)
            own = own._replace(total_X=own.total_X - diversity * times_Y)
        best_Z = members_Y[best_of_each(own, places_O)]
        chosen.append(best_Z)
        taken = np.concatenate([taken, keys_X[best_Z]])
    return np.concatenate(chosen)


def share_by_progress(totals_X: Sequence[float], progress_X: Sequence[int], safe_X: Sequence[bool], places: int
                      ) -> list[int]:  # fmt: skip
    """Dynamic beam allocation (Post and Vilar 2018) for one example with required phrases.

    The places go round the banks of equal progress, most progress first, to the best extension of each in turn. One of
    them goes to an extension that is safe, if there is any: one from which everything required still fits into the
    length limit. As a safe row always has a safe extension, the search ends with all phrases in place.

    Args:
        totals_X: log probabilities of the extensions.
        progress_X: how far each has got.
        safe_X: whether each is safe.
        places: to be given away.

    Returns:
        which extensions get a place.
    """
    banks: dict[int, list[int]] = {}
    for place in sorted(range(len(totals_X)), key=lambda place: -totals_X[place]):
        banks.setdefault(progress_X[place], []).append(place)
    queues = [banks[progress] for progress in sorted(banks, reverse=True)]
    chosen: list[int] = []
    while len(chosen) < places and queues:
        for queue in queues:
            if len(chosen) < places:
                chosen.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    if chosen and not any(safe_X[place] for place in chosen):
        safe = [place for place in range(len(totals_X)) if safe_X[place]]
        if safe:
            chosen[-1] = max(safe, key=lambda place: totals_X[place])
    return chosen
