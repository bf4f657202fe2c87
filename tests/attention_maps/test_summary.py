"""Attention in numbers."""

import math

import pytest
import torch

from transformer.attention_maps.maps import AttentionMap
from transformer.attention_maps.summary import choose_heads, entropy, strongest_links
from transformer.attention_maps.token_texts import Token
from transformer.nn.masks import causal_mask

EVERYTHING = torch.ones(2, 4, dtype=torch.bool)


def test_entropy_is_that_of_the_rows_on_average():
    one_hot, uniform, half = [1.0, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]
    assert entropy(torch.tensor([one_hot, one_hot]), EVERYTHING) == (0.0, 0.0)
    assert entropy(torch.tensor([uniform, uniform]), EVERYTHING) == pytest.approx((1.386294, 1.0), abs=1e-6)
    assert entropy(torch.tensor([half, one_hot]), EVERYTHING) == pytest.approx((0.346574, 0.25), abs=1e-6)


def test_the_share_is_of_what_a_query_may_see_and_a_query_without_a_choice_does_not_count():
    weights = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.2, 0.6]])
    nats, share = entropy(weights, causal_mask(3, 3)[0, 0])
    first = 0.693147  # of the second row
    second = 0.950271  # - 0.4 ln 0.2 - 0.6 ln 0.6
    assert nats == pytest.approx((first + second) / 2, abs=1e-6)
    assert share == pytest.approx((1 + second / 1.098612) / 2, abs=1e-6)


def test_one_token_has_no_entropy():
    nats, share = entropy(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool))
    assert math.isnan(nats)
    assert math.isnan(share)


def test_links_are_the_greatest_weights_of_queries_with_a_choice():
    weights = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.375, 0.125]])
    assert strongest_links(weights, causal_mask(3, 3)[0, 0]) == [(1, 1, 0.75), (2, 0, 0.5)]


@pytest.fixture
def attention():
    """Layer l, head h has the weight l.h everywhere."""
    weights_LHQK = (torch.arange(1, 4)[:, None] + torch.arange(1, 3) / 10)[:, :, None, None].expand(3, 2, 2, 4)
    token = Token(0, "", "")
    return AttentionMap("cross", [token] * 2, [token] * 4, weights_LHQK, EVERYTHING)


def chosen(attention, **numbers):
    heads = choose_heads(attention, **numbers)
    return [(head.name, round(float(head.weights_QK.unique()), 4)) for head in heads]


def test_heads_are_chosen_layer_by_layer(attention):
    assert chosen(attention, layers=[3, 1], heads=[2, None]) == [
        ("layer 3, head 2", 3.2),
        ("layer 3, mean", 3.15),
        ("layer 1, head 2", 1.2),
        ("layer 1, mean", 1.15),
    ]
    assert [name for name, _ in chosen(attention, layers=[2])] == [
        "layer 2, mean",
        "layer 2, head 1",
        "layer 2, head 2",
    ]
    assert len(chosen(attention)) == 9


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"layers": [0]}, "a layer of cross-attention must be from 1 to 3, but is 0."),
        ({"layers": [4]}, "a layer of cross-attention must be from 1 to 3, but is 4."),
        ({"heads": [None, 3]}, "a head of cross-attention must be from 1 to 2, but is 3."),
    ],
)
def test_there_must_be_such_heads(attention, numbers, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        choose_heads(attention, **numbers)
