"""Token embeddings and the checks of token ids."""

import math

import pytest
import torch

from transformer.nn.embedding import TokenEmbedding, check_tokens


def test_looks_rows_up_and_scales_on_request():
    torch.manual_seed(0)
    plain, scaled = TokenEmbedding(7, 5, scaled=False), TokenEmbedding(7, 5, scaled=True)
    tokens = torch.tensor([[3, 0, 3], [6, 1, 2]])
    assert torch.equal(plain(tokens), plain.weight[tokens])
    assert plain(tokens).shape == (2, 3, 5)
    assert (scaled(tokens) - scaled.weight[tokens] * math.sqrt(5)).abs().max() < 1e-6
    assert plain(tokens.int()).equal(plain(tokens))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), r"shape \(batch, length\), but have \(3,\)"),
        (torch.zeros(2, 3, 1, dtype=torch.int64), r"shape \(batch, length\), but have \(2, 3, 1\)"),
        (torch.zeros(2, 3), "must be int64 or int32, but are torch.float32"),
        (torch.zeros(2, 3, dtype=torch.bool), "must be int64 or int32, but are torch.bool"),
        (torch.zeros(2, 0, dtype=torch.int64), "at least one token"),
        (torch.tensor([[0, 7]]), r"from 0 to 6 \(a vocabulary of 7\), but range from 0 to 7"),
        (torch.tensor([[-100, 3]]), r"from 0 to 6 \(a vocabulary of 7\), but range from -100 to 3"),
    ],
)
def test_anything_but_ids_of_the_vocabulary_is_refused(tokens, message):
    with pytest.raises(ValueError, match=message):
        check_tokens(tokens, 7)
    with pytest.raises(ValueError, match=message):
        TokenEmbedding(7, 4, scaled=False)(tokens)


def test_the_first_and_the_last_id_and_an_empty_batch_are_fine():
    check_tokens(torch.tensor([[0, 6]]), 7)
    check_tokens(torch.zeros(0, 3, dtype=torch.int64), 7)
