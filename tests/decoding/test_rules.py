"""What the next token may be, rule by rule."""

import numpy as np
import pytest
import torch

from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.decoding.interface import Request
from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.rules import Rules
from transformer.decoding.search import search
from transformer.decoding.terms import BannedPhrases, RequiredTerms
from transformer.decoding.token_texts import TokenTexts

TEXTS = TokenTexts([None, b"a", b"b", b" ", b"."])


def _required(*terms):
    return RequiredTerms([PhraseMatcher(TEXTS, [term]) for term in terms], ordered=False)


def _banned(*phrases):
    return BannedPhrases([PhraseMatcher(TEXTS, [phrase]) for phrase in phrases])


def _possible(rules, outputs, examples=None):
    """The tokens that may follow outputs of one length, each of its own example."""
    examples = np.arange(len(outputs)) if examples is None else np.array(examples)
    states = rules.start(examples.tolist())
    for place, output in enumerate(outputs):
        for token in output:
            states[place] = rules.advance(int(examples[place]), states[place], token)
    logits_MV = torch.arange(5.0).repeat(len(outputs), 1)
    rules.forbid(logits_MV, np.array(outputs, dtype=np.int64).reshape(len(outputs), -1), examples, states)
    finite_MV = logits_MV.isfinite()
    assert logits_MV[finite_MV].equal(torch.arange(5.0).repeat(len(outputs), 1)[finite_MV])
    return [row.nonzero()[:, 0].tolist() for row in finite_MV]


def _rules(*requests, suppressed=(), **settings):
    return Rules(GreedyConfig(name="greedy", **settings), requests, eos_id=0, suppressed=suppressed)


def test_without_rules_everything_is_possible():
    assert _possible(_rules(Request(9), Request(9)), [[1, 1], [2, 2]]) == [[0, 1, 2, 3, 4]] * 2


def test_suppressed_tokens_never_come_but_the_end_always_may():
    assert _possible(_rules(Request(9), suppressed=[3, 0, 1]), [[2]]) == [[0, 2, 4]]


def test_the_end_waits_for_the_minimum_of_its_example():
    rules = _rules(Request(9, minimum=2), Request(9), Request(9, minimum=3))
    rows = [[1, 2]] * 4
    assert [0 in row for row in _possible(rules, rows, [2, 0, 1, 2])] == [False, True, True, False]


def test_a_prefix_wins_over_everything_else():
    prefix = (3, 1, 1)
    rules = _rules(Request(9, minimum=4, prefix=prefix, banned=_banned("a")), suppressed=[3], no_repeat_ngram=1)
    assert _possible(rules, [[]]) == [[3]]
    assert _possible(rules, [[3]]) == [[1]]
    assert _possible(rules, [[3, 1]]) == [[1]]
    assert _possible(_rules(Request(9, prefix=(3,)), Request(9)), [[], []]) == [[3], [0, 1, 2, 3, 4]]


def test_a_prefix_that_the_model_finds_impossible_stays_so(table_model):
    config = GreedyConfig(name="greedy")
    for settings in (config, BeamConfig(name="beam", size=3), SampleConfig(name="sample")):
        [[hypothesis]] = search(table_model([lambda text: [0.5, 0.5, 0.0]]), settings, [Request(5, prefix=(1, 2))],
                                eos_id=0)  # fmt: skip
        assert (hypothesis.tokens, hypothesis.finished) == ([1], False)


@pytest.mark.parametrize(
    ("size", "output", "possible"),
    [
        (1, [1, 2, 1], [0, 3, 4]),
        (2, [1, 2, 1], [0, 1, 3, 4]),
        (2, [1, 1], [0, 2, 3, 4]),
        (3, [1, 2, 3, 1, 2], [0, 1, 2, 4]),
        (3, [1, 2], [0, 1, 2, 3, 4]),
        (3, [1, 1, 1], [0, 2, 3, 4]),
        (2, [], [0, 1, 2, 3, 4]),
        (1, [], [0, 1, 2, 3, 4]),
    ],
)
def test_no_ngram_comes_twice(size, output, possible):
    rules = _rules(Request(9), Request(9), no_repeat_ngram=size)
    assert _possible(rules, [output, output]) == [possible] * 2


def test_ngrams_of_other_rows_do_not_count():
    assert _possible(_rules(Request(9), Request(9), no_repeat_ngram=1), [[1], [2]]) == [[0, 2, 3, 4], [0, 1, 3, 4]]


def test_the_end_waits_for_required_phrases_and_for_the_end_of_banned_words():
    rules = _rules(Request(9, required=_required("ab")), Request(9, banned=_banned("ab")), Request(9))
    rows = _possible(rules, [[1, 1], [1, 2], [1, 2]])
    assert [0 in row for row in rows] == [False, False, True]
    [row] = _possible(rules, [[1, 2]], [0])
    assert 0 in row
    [row] = _possible(rules, [[1, 2]], [1])
    assert row == [1, 2]  # a space or full stop would make it the word "ab"


def test_the_last_token_completes_no_banned_phrase():
    """For the limit cuts what might have made it part of a longer word."""
    rules = _rules(Request(2, banned=_banned("ab")), Request(3, banned=_banned("ab")))
    assert [2 in row for row in _possible(rules, [[1], [1]])] == [False, True]


def test_rows_lacking_phrases_are_told_what_brings_them_nearer_and_others_that_they_may_end():
    rules = _rules(Request(9, required=_required("ab")), Request(9, banned=_banned("ab")))
    examples = np.array([1, 0, 0])
    states = rules.start(examples.tolist())
    states[2] = rules.advance(0, rules.advance(0, states[2], 1), 2)
    assert [(row, group.tolist()) for row, group in rules.forced(examples, states, 2)] == [(1, [1]), (2, [0])]


def test_prospects_count_the_end_token():
    rules = _rules(Request(9), Request(9, required=_required("ab")))
    [_, state] = rules.start([0, 1])
    assert rules.prospect(1, state, 4) == (0, 3)
    assert rules.prospect(1, state, 1) == (1, 2)
    after = rules.advance(1, state, 1)
    assert rules.prospect(1, after, 2) == (2, 1)
    assert rules.prospect(1, rules.advance(1, after, 2), 0) == (2, 0)


def test_the_repetition_penalty_divides_what_is_positive_and_multiplies_what_is_not():
    rules = _rules(Request(9), Request(9), repetition_penalty=2.0)
    assert rules.change_scores
    assert not _rules(Request(9)).change_scores
    logits_MV = torch.tensor([[1.0, -1.0, 3.0, -3.0, 0.0]] * 2)
    before = logits_MV.clone()
    penalized_MV = rules.penalize(logits_MV, np.array([[2, 2, 1], [3, 4, 0]]))
    assert penalized_MV.tolist() == [[1.0, -2.0, 1.5, -3.0, 0.0], [0.5, -1.0, 3.0, -6.0, 0.0]]
    assert logits_MV.equal(before)
    assert rules.penalize(logits_MV, np.empty((2, 0), dtype=np.int64)).equal(before)


def test_where_nothing_may_follow_the_output_is_cut_there(table_model):
    """Two letters and no repetition: after both nothing is left but the end, for which it is too early."""
    for config in (GreedyConfig(name="greedy", no_repeat_ngram=1), BeamConfig(name="beam", size=2, no_repeat_ngram=1),
                   SampleConfig(name="sample", no_repeat_ngram=1)):  # fmt: skip
        tables = [lambda text: [0.2, 0.7, 0.1], lambda text: [0.9, 0.06, 0.04]]
        requests = [Request(6, minimum=4), Request(6)]
        [cut], [ended] = search(table_model(tables), config, requests, eos_id=0)
        assert sorted(cut.tokens) == [1, 2]
        assert not cut.finished
        assert len(cut.token_log_probabilities) == 2
        assert ended.finished


def test_beginnings_that_cannot_go_on_are_nothing_beside_an_output(table_model):
    table = {"": [0.5, 0.5, 0.0], "a": [0.0, 1.0, 0.0]}
    config = BeamConfig(name="beam", size=2, no_repeat_ngram=1)
    [hypotheses] = search(table_model([table.__getitem__]), config, [Request(5)], eos_id=0, num_best=2)
    assert [(hypothesis.tokens, hypothesis.finished) for hypothesis in hypotheses] == [([], True)]


@pytest.mark.parametrize("limits", [[0, 4], [4, 0], [0, 4, 0, 4]])
def test_groups_read_the_rows_of_their_own_examples(table_model, random_table, limits):
    """Examples without any room are as many rows as two groups need for one."""
    config = BeamConfig(name="beam", size=4, groups=2, diversity=0.5)
    tables = [random_table(place, 5, 1.0) for place in range(len(limits))]
    together = search(table_model(tables), config, [Request(limit) for limit in limits], eos_id=0)
    for place, limit in enumerate(limits):
        [alone] = search(table_model([tables[place]]), config, [Request(limit)], eos_id=0)
        assert together[place] == alone


@pytest.mark.parametrize("settings", [{"size": 1}, {"size": 4, "groups": 2, "diversity": 1.0}])
def test_required_phrases_need_one_beam_of_two_or_more(table_model, settings):
    model, request = table_model([lambda text: [0.2] * 5]), Request(9, required=_required("a"))
    with pytest.raises(ValueError, match="required phrases need a beam of 2 or more, and exclude diverse groups"):
        search(model, BeamConfig(name="beam", **settings), [request], eos_id=0)
    for config in (GreedyConfig(name="greedy"), SampleConfig(name="sample")):
        with pytest.raises(ValueError, match="required phrases need a beam of 2 or more"):
            search(model, config, [request], eos_id=0)
