"""Histograms of lengths, against the lengths themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.preparation.histogram import EXACT, Histogram, LengthTally

many = settings(max_examples=100, derandomize=True, deadline=None, database=None)
lengths_of_texts = st.lists(st.integers(0, 3000) | st.integers(0, 2**40), min_size=1, max_size=60)


def histogram_of(*parts: list[int]) -> Histogram:
    tally = LengthTally()
    for part in parts:
        tally.add(np.array(part, dtype=np.int64))
    return tally.histogram()


def test_small_lengths_are_counted_exactly() -> None:
    histogram = histogram_of([3, 1, 3], [], [0, 5])
    assert histogram.counts == (1, 1, 0, 2, 0, 1)
    assert (histogram.total, histogram.longest, histogram.num_texts, histogram.mean) == (12, 5, 5, 2.4)
    assert histogram.edges().tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_no_texts() -> None:
    histogram = histogram_of()
    assert histogram == Histogram()
    assert (histogram.num_texts, histogram.mean, histogram.quantile(0.5)) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("length", "place", "first", "after"),
    [
        (1023, 1023, 1023, 1024),
        (1024, 1024, 1024, 1040),
        (1039, 1024, 1024, 1040),
        (1040, 1025, 1040, 1056),
        (2047, 1087, 2032, 2048),
        (2048, 1088, 2048, 2080),
        (2**20 + 1, 1024 + 10 * 64, 2**20, 2**20 + 2**14),
        (2**50 - 1, 1024 + 40 * 64 - 1, 2**50 - 2**43, 2**50),
    ],
)
def test_bins_of_great_lengths(length: int, place: int, first: int, after: int) -> None:
    histogram = histogram_of([length])
    assert len(histogram.counts) == place + 1
    assert histogram.counts[place] == 1
    assert histogram.edges()[-2:].tolist() == [first, after]
    assert histogram.longest == histogram.total == histogram.quantile(1.0) == length


@pytest.mark.parametrize(
    ("share", "length"), [(0.0, 1), (0.05, 1), (0.051, 2), (0.07, 2), (0.5, 10), (0.95, 19), (0.951, 20), (1.0, 20)]
)
def test_quantiles_of_one_to_twenty(share: float, length: int) -> None:
    assert histogram_of(list(range(20, 0, -1))).quantile(share) == length


def test_a_product_that_is_rounded_up_is_no_more_texts() -> None:
    assert 0.07 * 100 > 7
    assert histogram_of(list(range(1, 101))).quantile(0.07) == 7


@many
@given(lengths_of_texts, st.floats(0, 1))
def test_quantiles_are_exact_or_a_little_too_great(lengths: list[int], share: float) -> None:
    exact = sorted(lengths)[max(0, int(np.ceil(share * len(lengths) - 1e-9)) - 1)]
    quantile = histogram_of(lengths).quantile(share)
    if exact < EXACT:
        assert quantile == exact
    else:
        assert exact <= quantile <= min(exact * (1 + 1 / 64), max(lengths))


@many
@given(lengths_of_texts, lengths_of_texts)
def test_parts_in_any_order_and_merged_give_the_same(one: list[int], other: list[int]) -> None:
    whole = histogram_of(one + other)
    assert histogram_of(other, one) == whole
    assert histogram_of(one).merged(histogram_of(other)) == whole
    assert histogram_of(one).merged(Histogram()) == histogram_of(one) == Histogram().merged(histogram_of(one))
    assert whole.num_texts == len(one) + len(other)
    assert whole.total == sum(one) + sum(other)
    assert whole.longest == max(one + other)
    assert Histogram.from_plain(whole.to_plain()) == whole


def test_every_length_lies_in_its_bin() -> None:
    lengths = np.unique(np.concatenate([np.arange(5000), 2 ** np.arange(40), 2 ** np.arange(1, 40) - 1]))
    for length in lengths.tolist():
        first, after = histogram_of([length]).edges()[-2:].tolist()
        assert first <= length < after


@pytest.mark.parametrize("plain", [{"counts": [1, 2], "longest": 3}, {"counts": [], "longest": 1, "total": -1}])
def test_contradictions_are_refused(plain: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be that of the longest|greater than or equal to 0"):
        Histogram.from_plain(plain)
