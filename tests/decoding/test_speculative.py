"""Speculative sampling: outputs have exactly the model's distribution, whatever the draft.

Two kinds of evidence: all ways that the random draws can fall, each with its probability, and frequencies.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from transformer.decoding import speculative
from transformer.decoding.config import GreedyConfig, SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules
from transformer.decoding.speculative import Drafted, speculative_search

SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 2},
    {"top_p": 0.7},
    {"min_p": 0.3},
    {"epsilon": 0.2},
    {"min_new_tokens": 1},
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram": 1},
]
DRAFTS = ("equal", "good", "bad")


class Table:
    """A session over a table from outputs to probabilities; token 0 ends an output."""

    def __init__(self, table, room=10**6):
        self.table, self.room, self.calls = table, room, []

    def next_logits(self, output, count):
        assert len(output) <= self.room
        assert 1 <= count <= len(output) + 1
        self.calls.append((list(output), count))
        beginnings = [output[: len(output) - back] for back in reversed(range(count))]
        return torch.tensor([self.table("".join("Eabcd"[t] for t in each)) for each in beginnings]).double().log()


def _tables(random_table, draft, seed, size):
    """A model's table and a draft's: the same; the model's mixed with another; one that mostly says something else."""
    model, other = random_table(seed, size, 1.0), random_table(seed + 100, size, 3.0)
    mixed = {"equal": 0.0, "good": 0.3, "bad": 1.0}[draft]
    return model, lambda text: [(1 - mixed) * p + mixed * q for p, q in zip(model(text), other(text), strict=True)]


def _rules(config, limit, line=1):
    return Rules(config, [Request(limit, config.min_new_tokens, line)], eos_id=0)


def _config(**settings):
    return SampleConfig(name="sample", **settings)


class _Draw:
    """A random number of which only an interval is known; a comparison that it leaves open takes one of two ways."""

    __array_ufunc__ = None

    def __init__(self, ways, scale=1.0, interval=None):
        self.ways, self.scale, self.interval = ways, scale, [0.0, 1.0] if interval is None else interval

    def __mul__(self, scale):
        return _Draw(self.ways, self.scale * float(scale), self.interval)

    def __lt__(self, bound):
        if bound is self:  # a binary search asks that first
            return False
        low, high = self.interval
        middle = bound / self.scale if self.scale > 0 else math.inf
        if not low < middle < high:
            return high <= middle
        below = self.ways.choose((middle - low) / (high - low))
        self.interval[below] = middle
        return below

    def __gt__(self, bound):
        return not self < bound


class _Ways:
    """Goes every way through a program with random draws, one after the other."""

    def __init__(self):
        self.taken, self.place, self.probability = [], 0, 1.0

    def random(self):
        return _Draw(self)

    def choose(self, share_of_true):
        if self.place == len(self.taken):
            self.taken.append(True)
        self.probability *= share_of_true if self.taken[self.place] else 1 - share_of_true
        self.place += 1
        return self.taken[self.place - 1]

    def all(self, program):
        while True:
            self.place, self.probability = 0, 1.0
            yield program(), self.probability
            while self.taken and not self.taken[-1]:
                self.taken.pop()
            if not self.taken:
                return
            self.taken[-1] = False


def _all_ways(monkeypatch, model, draft, config, limit, draft_tokens):
    """Each output and its probability, over all ways that the draws can fall."""
    ways = _Ways()
    monkeypatch.setattr(speculative, "new_generator", lambda *_: ways)
    outputs = {}

    def run():
        [hypothesis], _ = speculative_search(
            Table(model), Table(draft), config, _rules(config, limit), draft_tokens=draft_tokens
        )
        return tuple(hypothesis.tokens), hypothesis.finished

    for output, probability in ways.all(run):
        outputs[output] = outputs.get(output, 0.0) + probability
    return outputs


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_all_ways_of_the_draws_give_the_models_distribution(
    monkeypatch, random_table, sampled_outputs, draft, settings
):
    config = _config(**settings)
    for draft_tokens, size, limit in ((1, 3, 3), (2, 3, 3), (3, 4, 2), (2, 4, 2)):
        model, other = _tables(random_table, draft, 10 * draft_tokens + size, size)
        found = _all_ways(monkeypatch, model, other, config, limit, draft_tokens)
        expected = sampled_outputs(model, config, limit)
        assert sum(expected.values()) == pytest.approx(1.0, abs=1e-12)
        assert found == pytest.approx({key: expected.get(key, 0.0) for key in {*expected, *found}}, abs=1e-6)


def test_more_drafted_tokens_and_longer_outputs(monkeypatch, random_table, sampled_outputs):
    for draft_tokens, limit in ((3, 4), (5, 4)):
        model, other = _tables(random_table, "bad", draft_tokens, 3)
        config = _config(top_k=2)
        found = _all_ways(monkeypatch, model, other, config, limit, draft_tokens)
        assert found == pytest.approx(sampled_outputs(model, config, limit), abs=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("draft", DRAFTS)
def test_frequencies_follow_the_models_distribution(random_table, sampled_outputs, chance_of_counts, draft):
    """20,000 outputs with 1 to 5 drafted tokens, by a chi-square test of whole outputs."""
    size, limit, config = 4, 3, _config(temperature=0.8)
    model, other = _tables(random_table, draft, 7, size)
    counts, count = {}, 4_000
    for draft_tokens in range(1, 6):
        hypotheses, _ = speculative_search(
            Table(model), Table(other), config, _rules(config, limit, line=draft_tokens), draft_tokens=draft_tokens,
            num_samples=count,
        )  # fmt: skip
        for hypothesis in hypotheses:
            key = tuple(hypothesis.tokens), hypothesis.finished
            counts[key] = counts.get(key, 0) + 1
    assert chance_of_counts(counts, sampled_outputs(model, config, limit)) > 1e-4


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("draft_tokens", [1, 2, 3, 4, 5])
def test_without_temperature_it_is_greedy_search(table_model, random_table, draft, draft_tokens):
    """With every limit and every minimum, so with the end token anywhere in a draft, for both ways to say it."""
    ended = 0
    for seed, limit, minimum in itertools.product(range(6), range(7), (0, 2)):
        model, other = _tables(random_table, draft, seed, 3 + seed % 3)
        for config in (GreedyConfig(name="greedy", min_new_tokens=min(minimum, limit)), _config(temperature=0.0)):
            rules = _rules(config, limit)
            [expected] = greedy_search(table_model([model]), rules)
            [found], _ = speculative_search(Table(model), Table(other), config, rules, draft_tokens=draft_tokens)
            assert found.tokens == expected.tokens
            assert found.finished == expected.finished
            assert found.token_log_probabilities == pytest.approx(expected.token_log_probabilities, abs=1e-6)
            assert found.log_probability == found.score == pytest.approx(expected.log_probability, abs=1e-6)
            ended += found.finished
    assert ended > 20


def test_drafted_tokens_are_checked_in_one_pass():
    """A draft that agrees: rounds of 3 and the model's own token; the last ones as the limit leaves room."""
    table = lambda text: [0.01, 0.97, 0.02]  # noqa: E731
    model, draft, config = Table(table), Table(table), GreedyConfig(name="greedy")
    [hypothesis], drafted = speculative_search(model, draft, config, _rules(config, 10), draft_tokens=3)
    assert hypothesis.tokens == [1] * 10
    assert [(len(output), count) for output, count in model.calls] == [(3, 4), (7, 4), (9, 2)]
    assert [len(output) for output, _ in draft.calls] == [0, 1, 2, 4, 5, 6, 8]
    assert drafted == Drafted(proposed=7, taken=7)


def test_a_refused_token_costs_the_rest_of_the_draft():
    model, draft = (
        Table(lambda text: [0.1, 0.2, 0.7]),
        Table(lambda text: [0.1, 0.2, 0.7] if not text else [0.1, 0.7, 0.2]),
    )
    config = GreedyConfig(name="greedy")
    [hypothesis], drafted = speculative_search(model, draft, config, _rules(config, 5), draft_tokens=4)
    assert hypothesis.tokens == [2] * 5
    assert drafted == Drafted(proposed=4 + 2 + 1, taken=1)
    assert [(len(output), count) for output, count in model.calls] == [(4, 5), (4, 3), (4, 2), (4, 1)]


@pytest.mark.parametrize(("room", "proposed"), [(-3, 0), (-1, 0), (0, 1), (2, 3), (4, 5), (100, 5)])
def test_where_the_draft_cannot_read_on_the_model_goes_on_alone(room, proposed):
    table = lambda text: [0.01, 0.97, 0.02]  # noqa: E731
    draft, config = Table(table, room), GreedyConfig(name="greedy")
    [hypothesis], drafted = speculative_search(Table(table), draft, config, _rules(config, 6), draft_tokens=5)
    assert hypothesis.tokens == [1] * 6
    assert drafted == Drafted(proposed, proposed)


def test_draws_depend_on_the_seed_the_line_and_the_number(random_table):
    model, other = _tables(random_table, "good", 3, 5)

    def run(seed, line, count=1):
        rules = _rules(_config(), 12, line)
        hypotheses, _ = speculative_search(
            Table(lambda text: [0.0, *model(text)[1:]]), Table(other), _config(seed=seed), rules, draft_tokens=3,
            num_samples=count,
        )  # fmt: skip
        return [tuple(hypothesis.tokens) for hypothesis in hypotheses]

    assert run(1, 1, count=4)[:2] == run(1, 1, count=2)
    assert run(1, 1, count=4)[0] == run(1, 1)[0]
    assert len({*run(1, 1, count=4), *run(1, 2), *run(2, 1), *run(2, 2)}) == 7


def test_what_it_cannot_do_is_refused():
    model, config = Table(lambda text: [0.5, 0.5]), GreedyConfig(name="greedy")
    with pytest.raises(ValueError, match="greedy search gives one output, but 2 are asked for"):
        speculative_search(model, model, config, _rules(config, 3), draft_tokens=2, num_samples=2)
    rules = Rules(config, [Request(3, required=object())], eos_id=0)  # refused before anybody looks at it
    with pytest.raises(ValueError, match="required phrases need a beam of 2 or more"):
        speculative_search(model, model, config, rules, draft_tokens=2)


@pytest.mark.parametrize("broken", ["model", "draft"])
def test_broken_weights_are_refused(broken):
    sessions = {"model": Table(lambda text: [0.5, 0.5]), "draft": Table(lambda text: [0.5, 0.5])}
    sessions[broken] = Table(lambda text: [0.5, np.nan])
    config = _config()
    with pytest.raises(ValueError, match="logits must be finite numbers"):
        speculative_search(sessions["model"], sessions["draft"], config, _rules(config, 3), draft_tokens=2)
