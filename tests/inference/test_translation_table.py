"""IBM Model 1 against a plain implementation with dictionaries."""

from collections import defaultdict

import numpy as np
import pytest

from transformer.inference.translation_table import PairSample, TranslationTable, learn_translation_table

EMPTY = 6  # the empty word of a source vocabulary of 6


def random_pairs(seed, num_pairs=40):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 6, (num_pairs, 2))
    return [(random.integers(0, 6, a).astype(np.int32), random.integers(0, 9, b).astype(np.int32)) for a, b in lengths]


def plain(pairs, iterations):
    probability = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            words = [EMPTY, *source.tolist()]
            for t in target.tolist():
                total = sum(probability[s, t] for s in words)
                for s in words:
                    counts[s, t] += probability[s, t] / total
                    totals[s] += probability[s, t] / total
        probability = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return probability


def learn(pairs, **options):
    return learn_translation_table([s for s, _ in pairs], [t for _, t in pairs], 6, 9, **options)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("iterations", [1, 5])
@pytest.mark.parametrize("block", [1, 50, 10_000])
def test_probabilities_are_those_of_the_plain_implementation(seed, iterations, block):
    pairs = random_pairs(seed)
    table = learn(pairs, iterations=iterations, block=block)
    expected = plain(pairs, iterations)
    keys = list(zip(table.source_E.tolist(), table.target_E.tolist(), strict=True))
    assert keys == sorted(expected)
    np.testing.assert_allclose(table.probability_E, [expected[key] for key in keys], rtol=1e-12)
    sums = np.bincount(table.source_E, table.probability_E)
    np.testing.assert_allclose(sums[np.unique(table.source_E)], 1.0)


def test_it_finds_what_translates_what():
    """The book, a book, the house: only together do they tell "book" from "the"."""
    das, buch, haus, ein = range(4)
    the, book, house, a = range(4)
    pairs = [([das, buch], [the, book]), ([ein, buch], [a, book]), ([das, haus], [the, house])]
    table = learn([(np.array(s, np.int32), np.array(t, np.int32)) for s, t in pairs], iterations=20)
    starts, targets = table.best(1, 6)
    assert targets[starts[:4]].tolist() == [the, book, house, a]


def test_best_orders_by_probability_then_by_number():
    table = TranslationTable(
        np.array([0, 0, 0, 0, 2, 2, 6, 6]),
        np.array([1, 4, 5, 7, 3, 8, 0, 2]),
        np.array([0.1, 0.4, 0.1, 0.4, 0.2, 0.8, 0.5, 0.5]),
    )
    starts, targets = table.best(3, 6)
    assert starts.tolist() == [0, 3, 3, 5, 5, 5, 5]
    assert targets.tolist() == [4, 7, 1, 8, 3]  # the empty word's are left out


def test_without_any_target_there_is_nothing_to_learn():
    with pytest.raises(ValueError, match="at least one pair"):
        learn([(np.array([1], np.int32), np.array([], np.int32))])
    with pytest.raises(ValueError, match="at least one pair"):
        learn([])


def test_progress_is_told_to_the_end():
    told = []
    learn(random_pairs(0), iterations=2, block=30, progress=lambda *news: told.append(news))
    for what in ("words that occur together", "learning translations"):
        counts = [(done, total) for name, done, total in told if name == what]
        assert [done for done, _ in counts] == list(range(1, counts[-1][1] + 1))
    assert len(told) > 6


def test_a_sample_is_bounded_and_evenly_spread():
    sample = PairSample(max_cooccurrences=60)  # ten pairs of 2 and 2 tokens
    for number in range(100):
        sample.add([number, 0], [number, 1])
    places = [int(source[0]) for source in sample.sources]
    assert sample.num_seen == 100
    assert places == list(range(0, 100, 16))
    assert [int(target[0]) for target in sample.targets] == places


def test_a_sample_keeps_all_while_there_is_room():
    sample = PairSample(max_cooccurrences=60)
    for number in range(10):
        sample.add([number, 0], [number, 1])
    assert [source.tolist() for source in sample.sources] == [[number, 0] for number in range(10)]
    assert sample.sources[0].dtype == np.int32


def test_a_single_pair_beyond_the_bound_is_kept():
    sample = PairSample(max_cooccurrences=5)
    sample.add([1, 2, 3], [4, 5, 6])
    assert len(sample.sources) == 1
