"""Several models as one: the mean of what they find probable."""

import math

import pytest
import torch

from transformer.decoding.ensemble import EnsembleSteps


def test_its_probabilities_are_the_mean_of_all(table_model):
    sure, unsure, other = [0.9, 0.1, 0.0], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]
    ensemble = EnsembleSteps(
        [table_model([lambda text, shares=shares: shares] * 2) for shares in (sure, unsure, other)]
    )
    mean = [1.4 / 3, 0.9 / 3, 0.7 / 3]
    for logits_MV in (ensemble.start(), ensemble.step(torch.tensor([1, 1, 2]), torch.tensor([0, 1, 1]))):
        for row in logits_MV.exp().tolist():
            assert row == pytest.approx(mean, abs=1e-6)


def test_unnormalised_logits_weigh_no_more():
    class Fixed:
        def __init__(self, logits):
            self.logits = logits

        def start(self):
            return torch.tensor([self.logits])

    ensemble = EnsembleSteps([Fixed([100.0, 100.0]), Fixed([math.log(0.2), math.log(0.8)])])
    assert ensemble.start().exp().tolist() == [pytest.approx([0.35, 0.65], abs=1e-6)]


def test_each_model_continues_the_same_rows(table_model):
    tables = [lambda text: [0.5, 0.25, 0.25] if text.endswith("a") else [0.1, 0.1, 0.8]] * 2
    members = [table_model(tables) for _ in range(2)]
    ensemble = EnsembleSteps(members)
    ensemble.start()
    logits_MV = ensemble.step(torch.tensor([1, 2, 1]), torch.tensor([1, 0, 0]))
    assert [member.texts for member in members] == [["a", "b", "a"]] * 2
    assert logits_MV.exp()[:, 0].tolist() == pytest.approx([0.5, 0.1, 0.5], abs=1e-6)


def test_what_no_model_finds_possible_stays_impossible(table_model):
    ensemble = EnsembleSteps([table_model([lambda text: [0.5, 0.5, 0.0]]) for _ in range(2)])
    assert ensemble.start()[0, 2] == -torch.inf
