"""Even samples of a stream: which texts, and how many at once."""

import pytest

from transformer.data.thinning import EvenSample


@pytest.mark.parametrize(
    ("max_texts", "num_texts", "kept"),
    [
        (4, 3, [0, 1, 2]),
        (4, 4, [0, 1, 2, 3]),
        (4, 5, [0, 1, 2, 3]),
        (4, 8, [0, 2, 4, 6]),
        (4, 9, [0, 2, 4, 6]),
        (4, 11, [0, 2, 6, 8]),  # of 0, 2, 4, 6, 8, 10
        (4, 16, [0, 4, 8, 12]),
        (4, 65, [0, 16, 32, 48]),
        (1, 1000, [0]),
        (3, 7, [0, 2, 4]),
    ],
)
def test_samples_are_evenly_spread(max_texts: int, num_texts: int, kept: list[int]) -> None:
    sample = EvenSample.of(map(str, range(num_texts)), max_texts)
    assert sample.num_seen == num_texts
    assert list(map(int, sample.texts)) == kept


def test_samples_hold_few_texts_at_once() -> None:
    sample = EvenSample(10)
    for number in range(10_000):
        sample.add(str(number))
        assert len(sample._kept) <= 20
