"""Logits over shortlists."""

import numpy as np
import pytest
import torch
from torch import nn

from transformer.models.shortlisted import ShortlistedOutput
from transformer.nn.int8_linear import Int8Linear, input_levels

COLUMNS = torch.tensor([0, 2, 5, 7, 8])
ALLOWED = torch.tensor([[True, True, False, False, True], [True, False, True, True, True], [True] * 5])
ROWS = torch.tensor([0, 0, 1, 2, 1])


def layer(kind):
    torch.manual_seed(0)
    linear = nn.Linear(6, 10, bias=False)
    return linear if kind == "float32" else Int8Linear.from_linear(linear, input_levels() or 127)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_columns_are_those_of_the_whole_vocabulary(kind):
    hidden = torch.randn(5, 6)
    with torch.inference_mode():
        logits = ShortlistedOutput(layer(kind), COLUMNS, ALLOWED).logits(hidden, ROWS)
        whole = layer(kind)(hidden)[:, COLUMNS]
    allowed = ALLOWED[ROWS]
    torch.testing.assert_close(logits[allowed], whole[allowed])
    assert (logits[~allowed] == -torch.inf).all()
    assert logits.shape == (5, 5)


def test_probabilities_depend_on_the_rows_own_source_alone():
    hidden = torch.randn(5, 6)
    own = COLUMNS[ALLOWED[1]]
    with torch.inference_mode():
        together = ShortlistedOutput(layer("float32"), COLUMNS, ALLOWED).logits(hidden, ROWS).log_softmax(-1)
        alone = ShortlistedOutput(layer("float32"), own, torch.ones(1, len(own), dtype=torch.bool))
        expected = alone.logits(hidden[2:3], torch.tensor([0])).log_softmax(-1)
    torch.testing.assert_close(together[2][ALLOWED[1]], expected[0])


def test_columns_stand_for_the_tokens_of_the_union():
    output = ShortlistedOutput(layer("float32"), COLUMNS, ALLOWED)
    assert output.tokens(torch.tensor([4, 0, 2])).tolist() == [8, 0, 5]


def test_numpy_arrays_of_a_shortlist_will_do():
    output = ShortlistedOutput.from_numpy(
        layer("float32"), COLUMNS.numpy(), np.asarray(ALLOWED), device=torch.device("cpu")
    )
    hidden = torch.randn(1, 6)
    expected = ShortlistedOutput(layer("float32"), COLUMNS, ALLOWED).logits(hidden, torch.tensor([1]))
    torch.testing.assert_close(output.logits(hidden, torch.tensor([1])), expected)
