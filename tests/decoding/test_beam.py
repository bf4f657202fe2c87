"""Beam search against enumeration of every output, and against a search of one example written out plainly."""

import itertools
import math

import pytest

from transformer.decoding import beam, greedy
from transformer.decoding.config import BeamConfig, GreedyConfig
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules

PENALTIES = [("gnmt", 0.0), ("gnmt", 0.6), ("gnmt", 1.0), ("average", 1.0), ("average", 0.5), ("average", 2.0)]


def beam_search(model, config, *, limits, num_best=1):
    rules = Rules(config, [Request(limit) for limit in limits], eos_id=0)
    return beam.beam_search(model, config, rules, num_best=num_best)


def _config(size, normalization="gnmt", length_penalty=1.0):
    return BeamConfig(name="beam", size=size, normalization=normalization, length_penalty=length_penalty)


def _score(total, length, normalization, exponent):
    if exponent == 0:
        return total
    return total / (length if normalization == "average" else (5 + length) / 6) ** exponent


def _all_outputs(table, size, limit, normalization, exponent):
    """Every output as (unfinished, -score, text, log probability), best first; the end token counts as length."""
    outputs = []

    def extend(text, total):
        if len(text) == limit:
            outputs.append((True, -_score(total, limit, normalization, exponent), text, total))
            return
        for token, probability in enumerate(table(text)):
            new = total + math.log(probability)
            if token == 0:
                outputs.append((False, -_score(new, len(text) + 1, normalization, exponent), text, new))
            else:
                extend(text + "Eabcd"[token], new)

    extend("", 0.0)
    assert len(outputs) == sum((size - 1) ** n for n in range(limit)) + (size - 1) ** limit
    return sorted(outputs)


def _plain_beam(table, width, limit, normalization, exponent):
    """The same search for one example, without stopping early: ended texts give up their places."""
    live, ended, places = [("", 0.0)], [], width
    for length in range(1, limit + 1):
        extensions = [
            (total + math.log(probability), text, token)
            for text, total in live
            for token, probability in enumerate(table(text))
        ]
        live = []
        for total, text, token in sorted(extensions, reverse=True)[:places]:
            if token == 0:
                ended.append((False, -_score(total, length, normalization, exponent), text, total))
                places -= 1
            else:
                live.append((text + "Eabcd"[token], total))
    ended += [(True, -_score(total, limit, normalization, exponent), text, total) for text, total in live]
    return sorted(ended)


def _assert_same(hypotheses, expected):
    assert len(hypotheses) == len(expected)
    for hypothesis, (unfinished, negative_score, text, total) in zip(hypotheses, expected, strict=True):
        assert "".join("Eabcd"[token] for token in hypothesis.tokens) == text
        assert hypothesis.finished == (not unfinished)
        assert hypothesis.log_probability == pytest.approx(total, abs=2e-5)
        assert hypothesis.score == pytest.approx(-negative_score, abs=2e-5)


@pytest.mark.parametrize(("normalization", "exponent"), PENALTIES)
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(table_model, random_table, normalization, exponent):
    """75 random models for each penalty, in batches of five with limits of their own."""
    for seed in range(15):
        size, longest = [(3, 5), (4, 4), (5, 4), (3, 4), (2, 5)][seed % 5]
        tables = [random_table(100 * seed + place, size, 1.0) for place in range(5)]
        limits = [longest, 1, longest - 1, 2, longest]
        expected = [
            _all_outputs(table, size, limit, normalization, exponent)
            for table, limit in zip(tables, limits, strict=True)
        ]
        width = max(map(len, expected))
        for num_best in (1, 4):
            config = _config(width, normalization, exponent)
            found = beam_search(table_model(tables), config, limits=limits, num_best=num_best)
            for hypotheses, best in zip(found, expected, strict=True):
                _assert_same(hypotheses, best[:num_best])


@pytest.mark.parametrize(("normalization", "exponent"), PENALTIES)
def test_stopping_early_loses_nothing(table_model, random_table, normalization, exponent):
    """Narrow beams on 120 random models: the same best outputs as a search that goes on to the limit."""
    for seed, width in itertools.product(range(10), (1, 2, 3, 4)):
        tables = [random_table(1000 + 10 * seed + place, 3 + seed % 3, 1.0) for place in range(3)]
        limits = [8, 3, 5]
        num_best = min(width, 1 + seed % 3)
        found = beam_search(table_model(tables), _config(width, normalization, exponent), limits=limits,
                            num_best=num_best)  # fmt: skip
        for hypotheses, table, limit in zip(found, tables, limits, strict=True):
            _assert_same(hypotheses, _plain_beam(table, width, limit, normalization, exponent)[:num_best])


def test_a_beam_of_one_is_greedy_search(table_model, random_table):
    for seed in range(100):
        tables = [random_table(3000 + 10 * seed + place, 2 + seed % 4, 1.0) for place in range(4)]
        limits = [6, 0, 1, 4]
        rules = Rules(GreedyConfig(name="greedy"), [Request(limit) for limit in limits], eos_id=0)
        expected = greedy.greedy_search(table_model(tables), rules)
        found = beam_search(table_model(tables), _config(1), limits=limits)
        for [hypothesis], one in zip(found, expected, strict=True):
            assert hypothesis.tokens == one.tokens
            assert hypothesis.finished == one.finished
            assert hypothesis.log_probability == pytest.approx(one.log_probability, abs=1e-5)


def test_many_best_are_sorted_distinct_and_scored_as_their_tokens_are(table_model, random_table):
    for seed in range(30):
        table = random_table(5000 + seed, 5, 0.7)
        [hypotheses] = beam_search(table_model([table]), _config(6, "average", 0.8), limits=[5], num_best=6)
        assert len(hypotheses) == 6
        ranks = [(not hypothesis.finished, -hypothesis.score) for hypothesis in hypotheses]
        assert ranks == sorted(ranks)
        assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == 6
        for hypothesis in hypotheses:
            assert 0 not in hypothesis.tokens
            text, total = "", 0.0
            for token in [*hypothesis.tokens, 0] if hypothesis.finished else hypothesis.tokens:
                total += math.log(table(text)[token])
                text += "Eabcd"[token]
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-5)
            assert hypothesis.score == pytest.approx(total / len(text) ** 0.8, abs=1e-5)


def test_an_example_does_not_depend_on_its_batch(table_model, random_table):
    tables = [random_table(7000 + place, 4, 1.0) for place in range(8)]
    limits = [1, 2, 3, 4, 5, 6, 7, 8]
    together = beam_search(table_model(tables), _config(3), limits=limits, num_best=3)
    for place in range(8):
        alone = beam_search(table_model([tables[place]]), _config(3), limits=[limits[place]], num_best=3)
        assert alone == [together[place]]
    backwards = beam_search(table_model(tables[::-1]), _config(3), limits=limits[::-1], num_best=3)
    assert backwards == together[::-1]


def test_a_finished_example_costs_no_more_rows(table_model):
    rows = []

    class Recording(table_model):
        def step(self, tokens_M, parents_M):
            rows.append(len(tokens_M))
            return super().step(tokens_M, parents_M)

    ends, goes_on = (lambda text: [0.98, 0.01, 0.01]), (lambda text: [0.02, 0.5, 0.48])
    beam_search(Recording([ends, goes_on, ends]), _config(2), limits=[4, 4, 4])
    assert rows == [2, 2, 2]  # only the second example needs a second step


def test_impossible_tokens_never_fill_a_place(table_model):
    """Two outputs are possible; a beam of 5 returns these two and nothing of probability zero."""
    only_a_or_end = {"": [0.0, 0.75, 0.0, 0.25], "a": [1.0, 0.0, 0.0, 0.0], "c": [1.0, 0.0, 0.0, 0.0]}
    [hypotheses] = beam_search(table_model([only_a_or_end.__getitem__]), _config(2), limits=[4], num_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [[1], [3]]
    table = {**only_a_or_end, "b": [1.0, 0.0, 0.0, 0.0]}
    [hypotheses] = beam_search(table_model([lambda text: table.get(text, [1, 0, 0, 0])]), _config(5),
                               limits=[4], num_best=5)  # fmt: skip
    assert [hypothesis.tokens for hypothesis in hypotheses] == [[1], [3]]
    assert [hypothesis.log_probability for hypothesis in hypotheses] == pytest.approx([math.log(0.75), math.log(0.25)])


def test_fewer_outputs_than_asked_for_are_all_there_is(table_model):
    [hypotheses] = beam_search(table_model([lambda text: [0.4, 0.6]]), _config(4), limits=[1], num_best=4)
    assert [(h.tokens, h.finished) for h in hypotheses] == [([], True), ([1], False)]  # finished ones first


@pytest.mark.parametrize("limits", [[0], [0, 0, 0]])
def test_a_limit_of_zero_is_an_empty_unfinished_output(table_model, limits):
    found = beam_search(table_model([lambda text: [0.5, 0.5]] * len(limits)), _config(2), limits=limits)
    assert [tuple(hypothesis) for [hypothesis] in found] == [([], 0.0, 0.0, False, [])] * len(limits)


@pytest.mark.parametrize("num_best", [0, 3])
def test_more_results_than_places_are_refused(table_model, num_best):
    model = table_model([lambda text: [0.5, 0.5]])
    with pytest.raises(ValueError, match=rf"must be from 1 to the beam size \(2\), but is {num_best}\."):
        beam_search(model, _config(2), limits=[3], num_best=num_best)
