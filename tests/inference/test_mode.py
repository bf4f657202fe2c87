"""Evaluation mode for a while."""

import pytest
import torch
from torch import nn

from transformer.inference.mode import evaluation_mode


def _modes(model):
    return [module.training for module in model.modules()]


def _fail(output):
    assert torch.equal(output, torch.ones(100))
    raise ValueError("a vector")


def test_each_part_gets_its_own_mode_back():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)), nn.Dropout(0.5))
    model[1].eval()
    before = _modes(model)
    assert before == [True, True, False, False, False, True]
    with evaluation_mode(model):
        assert _modes(model) == [False] * 6
    assert _modes(model) == before


def test_the_mode_comes_back_after_an_error():
    model = nn.Dropout(0.5)
    with pytest.raises(ValueError, match="a vector"), evaluation_mode(model):
        _fail(model(torch.ones(100)))
    assert model.training
