"""How much of each corpus an epoch has."""

from collections import Counter

import numpy as np
import pytest

from transformer.data.batches.mixing import Epochs, known_size, shares_of


def test_without_weights_and_temperature_there_are_no_shares() -> None:
    assert shares_of(["a", "b"], [10, 90], None, None) is None
    assert shares_of(["a", "b"], [None, 90], None, None) is None
    assert shares_of(["a", "b"], [0, 90], None, None) is None


def test_weights_are_in_any_unit_and_sizes_do_not_matter() -> None:
    weights = {"b": 3, "a": 1, "c": 4.0}
    assert shares_of(["a", "b", "c"], [None, None, 7], weights, None) == pytest.approx([0.125, 0.375, 0.5])


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1, [0.01, 0.09, 0.9]), (2, [1 / 13.4868330, 3 / 13.4868330, 9.4868330 / 13.4868330]), (1e9, [1 / 3] * 3)],
)
def test_temperature_makes_shares_more_equal(temperature: float, expected: list[float]) -> None:
    """At temperature 2 the square roots of 1, 9 and 90 count."""
    assert shares_of(["a", "b", "c"], [1, 9, 90], None, temperature) == pytest.approx(expected, rel=1e-6)


def test_one_corpus_needs_no_size_for_its_temperature() -> None:
    assert shares_of(["a"], [None], None, 5.0) is None


def test_a_size_that_is_needed_and_not_known_is_refused() -> None:
    message = "^the number of examples of the corpus 'b' is not known before they are all read; give `data.weights`.$"
    with pytest.raises(ValueError, match=message):
        shares_of(["a", "b"], [5, None], None, 1.0)
    assert known_size("a", 5) == 5


@pytest.mark.parametrize(("weights", "temperature"), [({"a": 1.0, "b": 1.0}, None), (None, 2.0)])
def test_there_is_no_share_of_nothing(weights: dict[str, float] | None, temperature: float | None) -> None:
    with pytest.raises(ValueError, match=r"^no training example of the corpus 'b' is left to mix\.$"):
        shares_of(["a", "b"], [5, 0], weights, temperature)


def test_without_shares_an_epoch_has_every_example_once() -> None:
    epochs = Epochs([3, 0, 2], None, seed=1)
    assert epochs.all_alike
    assert [epochs.examples(epoch).tolist() for epoch in range(2)] == [[0, 1, 2, 3, 4]] * 2


def test_examples_may_have_names_of_their_own() -> None:
    numbers = np.array([2, 3, 5, 7, 11])
    assert Epochs([3, 2], None, 1, numbers).examples(4).tolist() == [2, 3, 5, 7, 11]
    mixed = Epochs([3, 2], [0.2, 0.8], 1, numbers).examples(0)
    assert set(mixed[:1]) <= {2, 3, 5}
    assert Counter(mixed[1:].tolist()) == {7: 2, 11: 2}


@pytest.mark.parametrize("shares", [[0.5, 0.3, 0.2], [0.01, 0.01, 0.98], [1 / 3] * 3])
def test_shares_hold_in_every_epoch(shares: list[float]) -> None:
    sizes = [10, 90, 900]
    epochs = Epochs(sizes, shares, seed=3)
    assert not epochs.all_alike
    for epoch in range(5):
        numbers = epochs.examples(epoch)
        found = [int(((low <= numbers) & (numbers < high)).sum()) for low, high in [(0, 10), (10, 100), (100, 1000)]]
        assert found == [round(1000 * share) for share in shares]


def test_a_corpus_is_used_up_before_any_of_its_examples_comes_again() -> None:
    """Of 7 examples an epoch takes 45, of 93 it takes 55: a pass over either goes on in the next epoch."""
    epochs = Epochs([7, 93], [0.45, 0.55], seed=5)
    taken = [epochs.examples(epoch) for epoch in range(12)]
    for start, size in ((0, 7), (7, 93)):
        sequence = [number for epoch in taken for number in epoch.tolist() if start <= number < start + size]
        passes = [sequence[place : place + size] for place in range(0, len(sequence) - size + 1, size)]
        assert len(passes) > 6
        assert all(sorted(one) == list(range(start, start + size)) for one in passes)
        assert len(set(map(tuple, passes))) > 0.9 * len(passes)  # each in an order of its own


def test_an_epoch_is_a_function_of_the_seed_and_its_number() -> None:
    shares = [0.5, 0.5]
    one, other = Epochs([20, 30], shares, seed=1), Epochs([20, 30], shares, seed=1)
    other.examples(7)
    assert one.examples(3).tolist() == other.examples(3).tolist()
    assert one.examples(3).tolist() != one.examples(4).tolist()
    assert one.examples(3).tolist() != Epochs([20, 30], shares, seed=2).examples(3).tolist()


def test_the_smallest_share_is_one_example() -> None:
    assert Counter((Epochs([50, 50], [0.001, 0.999], seed=1).examples(0) < 50).tolist()) == {True: 1, False: 100}
