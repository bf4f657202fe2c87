"""The most probable next tokens, found without sorting a vocabulary."""

import pytest
import torch

from transformer.decoding.candidates import best_columns, check_numbers, log_normalizers


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 127, 128, 192, 640, 641, 703, 704, 1000])
@pytest.mark.parametrize("most", [1, 2, 5, 11])
def test_best_columns_hold_the_greatest_values_in_order(width, most):
    count = min(most, width)
    generator = torch.Generator().manual_seed(width)
    for kind in ("different", "equal", "impossible", "clustered"):
        values_MV = torch.randn(7, width, generator=generator)
        if kind == "equal":
            values_MV = values_MV.round()
        if kind == "impossible":
            values_MV[torch.rand(7, width, generator=generator) < 0.97] = -torch.inf
        if kind == "clustered":  # all of the greatest in one block, or behind the last whole one
            values_MV[:, -min(width, count + 2) :] += 10
        columns_MK = best_columns(values_MV, count)
        assert values_MV.gather(1, columns_MK).equal(values_MV.sort(dim=1, descending=True).values[:, :count])
        assert all(len(set(row)) == count for row in columns_MK.tolist())


def test_best_columns_come_from_the_best_blocks():
    """The greatest value of each block, in falling order, wherever in its block it is."""
    values_MV = torch.zeros(1, 64 * 30)
    for block in range(30):
        values_MV[0, 64 * block + block] = block + 1.0
    assert best_columns(values_MV, 3).tolist() == [[64 * block + block for block in (29, 28, 27)]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
def test_normalizers_of_logits_of_any_size(dtype, shift):
    logits_MV = (torch.randn(5, 40, generator=torch.Generator().manual_seed(0)) * 4).to(dtype) + shift
    logits_MV[1, 3:] = -torch.inf
    normalizers_M = log_normalizers(logits_MV)
    assert normalizers_M.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(normalizers_M.double(), logits_MV.double().logsumexp(1), rtol=1e-6, atol=1e-5)


def test_normalizers_of_many_rows_and_of_none():
    logits_MV = torch.randn(300, 5000, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(log_normalizers(logits_MV), logits_MV.logsumexp(1), rtol=0, atol=1e-5)
    assert log_normalizers(torch.zeros(0, 7)).shape == (0,)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_broken_logits_are_refused(broken):
    logits_MV = torch.zeros(3, 6)
    check_numbers(log_normalizers(logits_MV).numpy())
    logits_MV[1, 2] = broken
    with pytest.raises(ValueError, match="logits must be finite numbers"):
        check_numbers(log_normalizers(logits_MV).numpy())
