"""Greedy search against a walk through the table of one example at a time."""

import math

import pytest
import torch

from transformer.decoding import greedy
from transformer.decoding.config import GreedyConfig
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules


def _rules(limits):
    return Rules(GreedyConfig(name="greedy"), [Request(limit) for limit in limits], eos_id=0)


def greedy_search(model, *, limits):
    return greedy.greedy_search(model, _rules(limits))


def _walk(table, limit):
    """Text, log probability and whether it ended, of one example alone."""
    text, total = "", 0.0
    while len(text) < limit:
        row = table(text)
        best = max(range(len(row)), key=row.__getitem__)
        total += math.log(row[best])
        if best == 0:
            return text, total, True
        text += "Eabcd"[best]
    return text, total, False


def test_equals_the_walk_of_each_example_alone(table_model, random_table):
    ended, cut = 0, 0
    for seed in range(30):
        tables = [random_table(10 * seed + place, 3 + seed % 3, 1.0) for place in range(6)]
        limits = [0, 1, 2, 3, 7, 5]
        hypotheses = greedy_search(table_model(tables), limits=limits)
        for hypothesis, table, limit in zip(hypotheses, tables, limits, strict=True):
            text, total, finished = _walk(table, limit)
            assert "".join("Eabcd"[token] for token in hypothesis.tokens) == text
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-5)
            assert hypothesis.score == hypothesis.log_probability
            assert hypothesis.finished == finished
            ended, cut = ended + finished, cut + (not finished)
    assert ended > 20
    assert cut > 20


def test_finished_and_cut_examples_leave_the_batch(table_model):
    """Rows fed to the model, step by step: nothing is computed for an example that has its output."""
    tables = [lambda text: [0.9, 0.1], lambda text: [0.1, 0.9], lambda text: [0.9 if text == "aa" else 0.1, 0.5]]
    fed = []

    class Recording(table_model):
        def step(self, tokens_M, parents_M):
            fed.append((tokens_M.tolist(), parents_M.tolist()))
            return super().step(tokens_M, parents_M)

    hypotheses = greedy_search(Recording(tables), limits=[5, 2, 5])
    assert [hypothesis.tokens for hypothesis in hypotheses] == [[], [1, 1], [1, 1]]
    assert [hypothesis.finished for hypothesis in hypotheses] == [True, False, True]
    assert fed == [([1, 1], [2, 1]), ([1], [0])]  # the last row fills the gap that the first leaves


@pytest.mark.parametrize("limits", [[0], [0, 0]])
def test_a_limit_of_zero_is_an_empty_unfinished_output(table_model, limits):
    hypotheses = greedy_search(table_model([lambda text: [0.5, 0.5]] * len(limits)), limits=limits)
    assert [tuple(hypothesis) for hypothesis in hypotheses] == [([], 0.0, 0.0, False, [])] * len(limits)


def test_no_example_is_no_output():
    assert greedy_search(_Empty(), limits=[]) == []


class _Empty:
    def start(self):
        return torch.zeros(0, 3)


def test_a_chooser_sees_the_numbers_of_the_examples_that_are_left(table_model):
    seen = []

    def second_best(logits_MV, examples):
        seen.append(list(examples))
        return logits_MV.argsort(-1, descending=True)[:, 1]

    tables = [lambda text: [0.3, 0.6, 0.1], lambda text: [0.2, 0.5, 0.3], lambda text: [0.3, 0.6, 0.1]]
    hypotheses = greedy.step_by_step(table_model(tables), second_best, _rules([3, 3, 3]))
    assert [hypothesis.tokens for hypothesis in hypotheses] == [[], [2, 2, 2], []]
    assert hypotheses[1].log_probability == pytest.approx(3 * math.log(0.3), abs=1e-6)
    assert seen == [[0, 1, 2], [1], [1]]
