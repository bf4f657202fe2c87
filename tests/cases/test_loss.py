"""Reported faults of the loss, by the id of their case."""

import math

import pytest
import torch
import torch.nn.functional as F

from transformer.data.batches.collate import collate_translation, shift_targets
from transformer.nn.embedding import check_tokens
from transformer.nn.loss import LossSum, cross_entropy
from transformer.nn.masks import lengths_to_mask


def _loss_of_logits(logits: torch.Tensor, labels: torch.Tensor, scored: torch.Tensor, smoothing: float) -> LossSum:
    """The hidden states are the logits and the projection is the identity."""
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype)
    return cross_entropy(logits, identity, labels, scored, label_smoothing=smoothing)


# LOSS-01: the pad token is the end token (2), rows [5, 6, 2] and [5, 6, 7, 8, 2] padded to 5, all logits equal.


def test_LOSS_01_real_end_tokens_are_scored_even_if_padding_has_the_same_id():
    rows = torch.tensor([[5, 6, 2, 2, 2], [5, 6, 7, 8, 2]])
    labels, scored = rows[:, 1:], lengths_to_mask(torch.tensor([3, 5]), 5)[:, 1:]
    assert labels[0][scored[0]].tolist() == [6, 2]
    assert labels[1][scored[1]].tolist() == [6, 7, 8, 2]
    sums = _loss_of_logits(torch.zeros(2, 4, 10, dtype=torch.float64), labels, scored, 0.0)
    assert sums.num_tokens.item() == 6
    assert sums.loss.item() == pytest.approx(13.8155, abs=1e-4)  # 6 ln 10
    faulty = _loss_of_logits(torch.zeros(2, 4, 10, dtype=torch.float64), labels, labels != 2, 0.0)
    assert (faulty.num_tokens.item(), round(faulty.loss.item(), 4)) == (4, 9.2103)


def test_LOSS_01_batches_decide_padding_by_length():
    batch = collate_translation([(0, [5], [5, 6]), (1, [5, 6, 7], [5, 6, 7, 8])], pad_id=2, bos_id=1, eos_id=2)
    assert batch.labels_BT.tolist() == [[5, 6, 2, 2, 2], [5, 6, 7, 8, 2]]
    assert batch.scored_BT.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.source_mask_BS.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


# LOSS-02: label smoothing and padding. V = 5, epsilon 0.1, logits [3, 1, 0, 2, 4], target 4. Policy (i): the mass is
# spread over the whole vocabulary, the label included.
LOGITS, PAD_LOGITS = [3.0, 1.0, 0.0, 2.0, 4.0], [0.0, 0.0, 0.0, 0.0, 9.0]


@pytest.mark.parametrize("pad_rows", [0, 1, 7])
@pytest.mark.parametrize("pad_label", [0, -100])
def test_LOSS_02_padding_adds_neither_loss_nor_gradient(pad_rows, pad_label):
    logits = torch.tensor([[LOGITS] + [PAD_LOGITS] * pad_rows], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[4] + [pad_label] * pad_rows])
    scored = torch.arange(1 + pad_rows)[None] == 0
    sums = _loss_of_logits(logits, labels, scored, 0.1)
    assert sums.loss.item() == pytest.approx(0.651914, abs=1e-6)
    assert sums.nll.item() == pytest.approx(0.451914, abs=1e-6)
    assert sums.num_tokens.item() == 1
    sums.loss.backward()
    assert logits.grad[0, 1:].abs().sum() == 0
    assert logits.grad[0, 0].abs().min() > 0


def test_LOSS_02_a_uniform_part_that_forgets_padding_gives_another_sum():
    logits = torch.tensor([LOGITS, PAD_LOGITS], dtype=torch.float64)
    log_probabilities = logits.log_softmax(-1)
    gold = -0.9 * log_probabilities[0, 4]
    by_hand = gold - 0.1 * log_probabilities[0].mean()
    assert by_hand.item() == pytest.approx(0.651914, abs=1e-6)
    faulty = gold - 0.1 * log_probabilities.mean(-1).sum()
    assert faulty.item() == pytest.approx(1.371964, abs=1e-6)


def test_LOSS_02_the_policy_is_torchs_own():
    expected = F.cross_entropy(torch.tensor([LOGITS], dtype=torch.float64), torch.tensor([4]), label_smoothing=0.1)
    assert expected.item() == pytest.approx(0.651914, abs=1e-6)
    others = [0.751914, 0.701914]  # (ii) over V minus label and pad, (iii) over V minus the label
    assert all(expected.item() != pytest.approx(other, abs=1e-3) for other in others)


# LOSS-07: shifting decoder input and labels. Start 1, end 2, pad 0.


def test_LOSS_07_one_start_and_one_end_token_each_on_its_side():
    assert shift_targets([7, 8, 9], bos_id=1, eos_id=2) == ([1, 7, 8, 9], [7, 8, 9, 2])
    assert shift_targets([], bos_id=1, eos_id=2) == ([1], [2])


def test_LOSS_07_padding_is_neither_scored_nor_a_negative_id():
    examples = [(0, [4], [7, 8, 9]), (1, [4], [7, 8, 9, 5, 6]), (2, [4], [])]
    batch = collate_translation(examples, pad_id=0, bos_id=1, eos_id=2)
    assert batch.target_BT.tolist() == [[1, 7, 8, 9, 0, 0], [1, 7, 8, 9, 5, 6], [1, 0, 0, 0, 0, 0]]
    assert [labels[scored].tolist() for labels, scored in zip(batch.labels_BT, batch.scored_BT, strict=True)] == [
        [7, 8, 9, 2],
        [7, 8, 9, 5, 6, 2],
        [2],
    ]
    assert batch.scored_BT.sum(1).tolist() == [4, 6, 1]
    assert batch.target_BT.min() >= 0


def test_LOSS_07_labels_hidden_by_minus_one_hundred_never_reach_an_embedding():
    with pytest.raises(ValueError, match="but range from -100 to 9"):
        check_tokens(torch.tensor([[1, 7, 8, 9, -100, -100]]), 12)
    logits = torch.zeros(1, 6, 12, dtype=torch.float64)
    labels = torch.tensor([[7, 8, 9, 2, -100, -100]])
    assert _loss_of_logits(logits, labels, labels >= 0, 0.0).loss.item() == pytest.approx(4 * math.log(12), abs=1e-12)
