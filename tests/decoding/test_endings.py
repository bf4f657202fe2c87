"""The outputs that a beam has ended, and which examples can still do better."""

import math

import numpy as np
import pytest
import torch

from transformer.decoding.config import BeamConfig
from transformer.decoding.endings import Endings
from transformer.decoding.interface import Request


def _endings(*limits, num_best=1, **settings):
    config = BeamConfig(name="beam", **{"size": 4, "normalization": "average"} | settings)
    return Endings(config, [Request(limit) for limit in limits], num_best)


def _add(endings, tokens, total, *, example=0, group=0, finished=True, coverage=None):
    own = [total / len(tokens)] * len(tokens)
    endings.add(example, group, tokens, own, total=total, finished=finished, coverage=coverage)


def _may_win(endings, *totals, examples=None):
    examples = [0] * len(totals) if examples is None else examples
    return endings.may_win(np.array(examples), np.array(totals)).tolist()


def test_scores_count_the_end_token_of_finished_outputs():
    endings = _endings(5)
    _add(endings, [3, 3, 0], -3.6)
    _add(endings, [4, 4, 4], -3.3, finished=False)
    [finished] = endings.best()[0]
    assert finished.tokens == [3, 3]
    assert finished.score == pytest.approx(-1.2)
    assert finished.log_probability == pytest.approx(-3.6)
    [cut] = [each for each in endings.hypotheses[0] if not each.finished]
    assert (cut.tokens, cut.score) == ([4, 4, 4], pytest.approx(-1.1))


def test_the_log_probability_is_the_sum_of_the_tokens_own():
    """Under a repetition penalty it is another number than the total that the search ranks by."""
    endings = _endings(5)
    endings.add(0, 0, [3, 0], [-0.25, -0.5], total=-4.0, finished=True, coverage=None)
    [[hypothesis]] = endings.best()
    assert hypothesis.log_probability == -0.75
    assert hypothesis.score == -2.0
    assert hypothesis.token_log_probabilities == [-0.25, -0.5]


def test_coverage_above_one_and_of_padding_costs_nothing():
    endings = _endings(5, coverage_penalty=0.5)
    _add(endings, [3, 0], -2.0, coverage=torch.tensor([0.5, 1.7, torch.inf, 0.25]))
    [[hypothesis]] = endings.best()
    assert hypothesis.score == pytest.approx(-1.0 + 0.5 * (math.log(0.5) + math.log(0.25)))


def test_finished_outputs_come_first():
    endings = _endings(3, num_best=3)
    _add(endings, [3, 3, 3], -0.1, finished=False)
    _add(endings, [4, 0], -9.0)
    _add(endings, [0], -2.0)
    assert [each.tokens for each in endings.best()[0]] == [[], [4], [3, 3, 3]]


def test_an_output_found_twice_is_there_once_and_costs_both_groups_a_place():
    endings = _endings(3, num_best=4, groups=2, diversity=1.0)
    assert endings.places().tolist() == [[2, 2]]
    for group in (0, 1, 1):
        _add(endings, [3, 0], -1.0, group=group)
    _add(endings, [3], -1.0, group=0, finished=False)  # cut here: another output
    assert len(endings.best()[0]) == 2
    assert endings.places().tolist() == [[0, 0]]


@pytest.mark.parametrize(("patience", "places"), [(1.0, [4, 3, 2, 1, 0]), (1.3, [4, 4, 4, 3, 2]), (2.0, [4] * 5)])
def test_patience_keeps_the_places_of_the_first_endings(patience, places):
    endings, seen = _endings(9, patience=patience), []
    for count in range(5):
        seen.append(int(endings.places()[0, 0]))
        _add(endings, [*range(1, count + 1), 0], -1.0)
    assert seen == places


def test_patience_counts_endings_without_the_rounding_of_floats():
    endings = _endings(9, size=25, patience=1.12)  # 28, while the product of floats is a little above
    for number in range(27):
        _add(endings, [number + 1, 0], -1.0)
    assert endings.places().tolist() == [[1]]


def test_a_row_may_win_as_long_as_the_longest_output_could_beat_the_bar():
    """With an end after 2 tokens at -1.5 the score to beat is -0.75: of 6 tokens that is a total of -4.5."""
    endings = _endings(6)
    assert _may_win(endings, -99.0) == [True]
    _add(endings, [3, 0], -1.5)
    assert _may_win(endings, -4.4) == [True]
    assert _may_win(endings, -4.6) == [False]
    assert _may_win(endings, -4.5) == [False]  # the first of equals stays


def test_the_rows_of_an_example_stay_or_go_together():
    endings = _endings(6, 6)
    for example in (0, 1):
        _add(endings, [3, 0], -1.5, example=example)
    totals = [-4.4, -9.0, -4.6, -9.0]
    assert _may_win(endings, *totals, examples=[0, 0, 1, 1]) == [True, True, False, False]


def test_of_several_best_the_last_one_is_the_bar():
    endings = _endings(6, num_best=2)
    _add(endings, [3, 0], -1.0)
    _add(endings, [3, 3], -0.2, finished=False)
    assert _may_win(endings, -99.0) == [True]  # one that the limit cut is no bar
    _add(endings, [4, 0], -2.0)
    assert _may_win(endings, -5.9) == [True]
    assert _may_win(endings, -6.1) == [False]
    _add(endings, [2, 0], -1.5)
    assert _may_win(endings, -4.6) == [False]


def test_without_any_room_the_empty_output_is_the_only_one():
    assert [[tuple(each) for each in best] for best in _endings(0, 3).best()] == [[([], 0.0, 0.0, False, [])], []]


def test_a_source_token_without_any_attention_leaves_the_score_finite():
    endings = _endings(5, coverage_penalty=0.5)
    _add(endings, [3, 0], -2.0, coverage=torch.tensor([0.0, 1.0]))
    [[best]] = endings.best()
    assert -60 < best.score < -40  # half of the logarithm of the smallest number
