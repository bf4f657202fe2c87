"""Rows keep their places where they can."""

import numpy as np
import pytest

from transformer.decoding.places import in_place_order


@pytest.mark.parametrize(
    ("parents", "order"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([2, 1, 0], [2, 1, 0]),
        ([1, 2], [1, 0]),  # row 1 continues itself; the other one fills the gap
        ([0, 0, 1], [0, 2, 1]),  # of two that continue row 0 the first stays, and so does row 1
        ([5, 5, 5], [0, 1, 2]),
        ([4, 0, 4, 1], [1, 3, 0, 2]),
        ([], []),
    ],
)
def test_whoever_can_stay_stays(parents, order):
    assert in_place_order(np.array(parents, dtype=np.int64)).tolist() == order


def test_order_is_a_permutation_in_which_most_rows_stay():
    generator = np.random.default_rng(0)
    for _ in range(300):
        parents = generator.integers(0, 12, size=generator.integers(1, 12))
        order = in_place_order(parents)
        assert sorted(order.tolist()) == list(range(len(parents)))
        staying = (parents[order] == np.arange(len(parents))).sum()
        assert staying == len({parent for parent in parents.tolist() if parent < len(parents)})
