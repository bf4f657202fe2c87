"""Who gets the places of a beam."""

import numpy as np

from transformer.decoding.allocation import Extensions, best_of_each, diverse_groups, share_by_progress


def _extensions(*rows):
    """From rows of owner, parent, rank, token and total."""
    owner, parent, rank, token, total = zip(*rows, strict=True)
    return Extensions(*(np.array(column) for column in (owner, parent, rank, token)), np.array(total, dtype=float))


def test_each_owner_gets_its_best_in_falling_order():
    extensions = _extensions(
        (0, 0, 0, 1, -3.0), (2, 4, 0, 1, -1.0), (0, 1, 1, 2, -1.0), (2, 4, 0, 2, -0.5), (0, 0, 0, 3, -2.0),
        (2, 5, 1, 7, -9.0),
    )  # fmt: skip
    assert best_of_each(extensions, np.array([2, 5, 3])).tolist() == [2, 4, 3, 1, 5]
    assert best_of_each(extensions, np.array([0, 5, 1])).tolist() == [3]


def test_of_equal_totals_the_better_row_and_the_smaller_token_win():
    extensions = _extensions((0, 0, 1, 5, -1.0), (0, 1, 0, 9, -1.0), (0, 0, 1, 4, -1.0), (0, 1, 0, 8, -1.0))
    assert best_of_each(extensions, np.array([4])).tolist() == [3, 1, 2, 0]


def test_no_extensions_get_no_places():
    assert best_of_each(_extensions((0, 0, 0, 0, 0.0)).take(np.array([], dtype=int)), np.array([3, 3])).tolist() == []


def test_a_token_loses_diversity_for_every_time_it_was_taken():
    """Group 0 takes token 1 twice, so in group 1 it is worth 2 less: token 2 wins, though no total has changed."""
    extensions = _extensions(
        (0, 0, 0, 1, -1.0), (0, 1, 1, 1, -1.5), (0, 1, 1, 2, -4.0),
        (0, 2, 0, 1, -1.0), (0, 2, 0, 2, -2.9), (0, 3, 1, 3, -3.1),
    )  # fmt: skip
    groups, places = np.array([0, 0, 0, 1, 1, 1]), [np.array([2]), np.array([1])]
    assert diverse_groups(extensions, groups, places, 1.0).tolist() == [0, 1, 4]
    assert diverse_groups(extensions, groups, places, 0.9).tolist() == [0, 1, 3]


def test_later_groups_differ_from_all_earlier_ones_but_not_from_themselves():
    extensions = _extensions(*((0, row, row % 2, token, -float(token)) for row in range(3) for token in (1, 2, 3, 4)))
    groups, places = np.repeat([0, 1, 2], 4), [np.array([1])] * 3
    chosen = diverse_groups(extensions, groups, places, 2.5)
    assert extensions.token_X[chosen].tolist() == [1, 2, 3]
    within = diverse_groups(extensions, np.zeros(12, dtype=int), [np.array([3])], 99.0)
    assert extensions.token_X[within].tolist() == [1, 1, 1]


def test_other_examples_take_nothing_away():
    extensions = _extensions((0, 0, 0, 1, -1.0), (1, 1, 0, 1, -1.0), (1, 1, 0, 2, -1.5))
    chosen = diverse_groups(extensions, np.array([0, 1, 1]), [np.array([1, 1]), np.array([1, 1])], 5.0)
    assert chosen.tolist() == [0, 1]


def test_places_go_round_the_banks_from_the_most_progress_on():
    totals, progress = [-1.0, -2.0, -3.0, -9.0, -8.0, -5.0], [0, 0, 0, 2, 2, 1]
    safe = [True] * 6
    assert share_by_progress(totals, progress, safe, 1) == [4]
    assert share_by_progress(totals, progress, safe, 3) == [4, 5, 0]
    assert share_by_progress(totals, progress, safe, 5) == [4, 5, 0, 3, 1]
    assert share_by_progress(totals, progress, safe, 9) == [4, 5, 0, 3, 1, 2]
    assert share_by_progress(totals, progress, safe, 0) == []
    assert share_by_progress([], [], [], 4) == []


def test_one_place_is_for_the_best_that_is_safe():
    totals, progress = [-1.0, -2.0, -3.0, -4.0], [1, 1, 0, 0]
    assert share_by_progress(totals, progress, [False, False, False, True], 2) == [0, 3]
    assert share_by_progress(totals, progress, [False, True, False, True], 2) == [0, 1]
    assert share_by_progress(totals, progress, [True, False, False, True], 2) == [0, 2]
    assert share_by_progress(totals, progress, [False] * 4, 2) == [0, 2]
    assert share_by_progress(totals, progress, [False, False, True, True], 1) == [2]
