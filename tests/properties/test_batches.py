"""Properties of batches, for any lengths, budgets, ranks and mixtures: nothing is lost, nothing comes twice."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transformer.data.batches.buckets import Batches, LengthBucketBatches, RunSampler, batches_by_length
from transformer.data.batches.documents import WindowBatches
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.packing import PackedBatches
from transformer.data.preparation.arrow import IntArray

few = settings(max_examples=60, derandomize=True, deadline=None, database=None)
lengths = st.integers(1, 40)
examples = st.integers(1, 3).flatmap(lambda sides: st.lists(st.tuples(*[lengths] * sides), min_size=1, max_size=120))
seeds = st.integers(0, 1000)
mixtures = st.lists(st.tuples(st.integers(1, 30), st.floats(0.1, 10)), min_size=1, max_size=4)


def members(batch: Iterable[Any]) -> list[int]:
    """The examples of a batch, also of one of rows."""
    return [int(index) for part in batch for index in np.atleast_1d(part)]


def within_budget(lengths_NK: IntArray, batch: list[int], budget: int) -> bool:
    return len(batch) == 1 or len(batch) * int(lengths_NK[batch].max()) <= budget


@given(examples, st.integers(1, 200))
@few
def test_cutting_keeps_order_and_budget_and_leaves_no_room(rows: list[tuple[int, ...]], budget: int) -> None:
    lengths_NK = np.array(rows)
    batches = batches_by_length(lengths_NK, budget)
    places = [list(range(len(rows)))[batch] for batch in batches]
    assert [place for batch in places for place in batch] == list(range(len(rows)))
    for batch, following in zip(places, [*places[1:], None], strict=True):
        assert within_budget(lengths_NK, batch, budget)
        assert following is None or not within_budget(lengths_NK, [*batch, following[0]], budget)


@given(examples, st.integers(1, 400), st.integers(1, 4), seeds)
@few
def test_length_buckets_have_every_example_once_within_the_budget(
    rows: list[tuple[int, ...]], budget: int, ranks: int, seed: int
) -> None:
    assume(len(rows) >= 2 * ranks)
    lengths_NK = np.array(rows)
    batches = LengthBucketBatches(lengths_NK, budget, Epochs([len(rows)], None, seed), seed=seed, ranks=ranks)
    for epoch in (3, 0, 1):
        made = [members(batch) for batch in batches.epoch(epoch)]
        assert len(made) == batches.num_batches(epoch)
        assert len(made) % ranks == 0
        assert sorted(index for batch in made for index in batch) == list(range(len(rows)))
        assert all(within_budget(lengths_NK, batch, budget) for batch in made)
        again = LengthBucketBatches(lengths_NK, budget, Epochs([len(rows)], None, seed), seed=seed, ranks=ranks)
        assert made == [members(batch) for batch in again.epoch(epoch)]


def make_batches(kind: str, sizes: list[int], shares: list[float] | None, seed: int, ranks: int) -> Batches:
    total = sum(sizes)
    lengths_N2 = np.random.default_rng(seed).integers(1, 12, size=(total, 2))
    epochs = Epochs(sizes, shares, seed)
    match kind:
        case "buckets":
            return LengthBucketBatches(lengths_N2, 40, epochs, seed=seed, ranks=ranks)
        case "packed":
            return PackedBatches(lengths_N2, capacity=12, rows=2, seed=seed, ranks=ranks, epochs=epochs)
        case _:
            return WindowBatches([5 * size + 5 for size in sizes], 5, 3, shares, seed=seed, ranks=ranks)


@given(st.sampled_from(["buckets", "packed", "windows"]), mixtures, st.booleans(), st.integers(1, 3), seeds)
@few
def test_ranks_share_every_epoch_and_any_run_can_go_on_anywhere(
    kind: str, mixture: list[tuple[int, float]], is_weighted: bool, ranks: int, seed: int
) -> None:
    sizes, weights = [size for size, _ in mixture], [weight for _, weight in mixture]
    assume(sum(sizes) >= 12)
    shares = [weight / sum(weights) for weight in weights] if is_weighted else None
    batches = make_batches(kind, sizes, shares, seed, ranks)
    counts = [batches.num_batches(epoch) for epoch in range(3)]
    assert all(count % ranks == 0 for count in counts)
    num_steps = sum(counts) // ranks
    runs = [list(RunSampler(batches, num_steps, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert [len(run) for run in runs] == [num_steps] * ranks
    for epoch in range(3):
        of_ranks = [[members(plan.examples) for plan in run if plan.epoch == epoch] for run in runs]
        of_all = [members(batch) for batch in batches.epoch(epoch)]
        assert {len(made) for made in of_ranks} == {counts[epoch] // ranks}
        # Every step has the next batches, one of each rank.
        assert [batch for step in zip(*of_ranks, strict=True) for batch in step] == of_all
        # So no example is lost or given to two ranks.
        if kind != "windows":
            expected = Epochs(sizes, shares, seed).examples(epoch).tolist()
            assert Counter(index for batch in of_all for index in batch) == Counter(expected)
    for position in {0, 1, num_steps // 3, num_steps // 2, num_steps - 1, num_steps}:
        fresh = make_batches(kind, sizes, shares, seed, ranks)  # nothing is left over from before
        sampler = RunSampler(fresh, num_steps, rank=ranks - 1, ranks=ranks)
        sampler.position = position
        left = [(plan.epoch, members(plan.examples)) for plan in sampler]
        assert left == [(plan.epoch, members(plan.examples)) for plan in runs[-1][position:]]


@given(mixtures, seeds)
@few
def test_mixtures_have_their_shares_and_use_up_a_corpus_before_it_repeats(
    mixture: list[tuple[int, float]], seed: int
) -> None:
    sizes, weights = [size for size, _ in mixture], [weight for _, weight in mixture]
    shares = [weight / sum(weights) for weight in weights]
    epochs, start = Epochs(sizes, shares, seed), 0
    taken = [epochs.examples(epoch).tolist() for epoch in range(4)]
    for size, share in zip(sizes, shares, strict=True):
        own = [[number for number in epoch if start <= number < start + size] for epoch in taken]
        assert all(abs(len(part) - sum(sizes) * share) <= 1 for part in own)
        sequence = [number for part in own for number in part]
        for place in range(0, len(sequence), size):
            assert len(set(sequence[place : place + size])) == min(size, len(sequence) - place)
        start += size
    assert all(0 <= number < start for epoch in taken for number in epoch)


@pytest.mark.parametrize("seed", [0, 1])
def test_little_padding_on_lengths_like_those_of_multi30k(seed: int) -> None:
    """29,000 pairs of 17 and 18 tokens on average, of like length on the whole; 4,096 tokens a batch."""
    generator = np.random.default_rng(seed)
    common = generator.gamma(9, 1, size=29_000)
    sides = [common * mean * generator.lognormal(0, 0.13, size=29_000) / 9.08 for mean in (16, 17)]
    lengths_N2 = np.stack(sides, axis=1).round().astype(np.int64).clip(3, 60) + 1
    assert lengths_N2.mean(axis=0) == pytest.approx([17, 18], abs=0.2)
    assert np.corrcoef(lengths_N2.T)[0, 1] == pytest.approx(0.86, abs=0.02)
    batches = LengthBucketBatches(lengths_N2, 4096, Epochs([29_000], None, seed), seed=seed, ranks=1)
    made = list(batches.epoch(0))
    padded = sum(len(batch) * lengths_N2[batch].max(axis=0) for batch in made)
    source, target = 1 - lengths_N2.sum(axis=0) / padded
    assert source <= 0.06
    assert target <= 0.02
    assert len(made) < 1.4 * lengths_N2.max(axis=1).sum() / 4096  # and the budget is made use of
    assert all(len(batch) * lengths_N2[batch].max() <= 4096 for batch in made)
