"""Room for subwords drawn at random: batches are planned before their texts are cut, and cut texts are longer."""

import numpy as np

from transformer.data.batches.pairs import FittedPairs, example_random
from transformer.data.preparation.arrow import IntArray

NUM_DRAWN = 1000
DEVIATIONS = 2.0


def lengths_with_room(pairs: FittedPairs, limit: int, seed: int) -> IntArray:
    """For each side of each pair a length that few of its random cuts exceed.

    The growth of a text is the sum over its pieces, so with n tokens it has the mean a * n and the deviation
    sqrt(b * n); a and b of each side are estimated from up to 1,000 pairs, evenly spread. Planned with the lengths of
    the usual cut, batches would be full already, and nearly all texts would have to be taken as they usually are.

    Args:
        pairs: able to draw.
        limit: of any length.
        seed: of the draws.
    """
    spread = np.linspace(0, len(pairs.numbers) - 1, min(NUM_DRAWN, len(pairs.numbers))).astype(np.int64)
    numbers = pairs.numbers[spread]
    plain_M2 = pairs.lengths_N2[numbers].astype(np.float64)
    drawn = [pairs.sampled(int(number), example_random(seed, 0, int(number))) for number in numbers]
    growth_M2 = np.array([(len(source) + 1, len(target) + 1) for source, target in drawn]) - plain_M2
    total_2 = plain_M2.sum(axis=0)
    mean_2 = growth_M2.sum(axis=0) / total_2
    variance_2 = ((growth_M2 - mean_2 * plain_M2) ** 2).sum(axis=0) / total_2
    planned_N2 = pairs.lengths_N2 * (1 + mean_2) + DEVIATIONS * np.sqrt(variance_2 * pairs.lengths_N2)
    rounded_N2: IntArray = np.ceil(planned_N2).astype(pairs.lengths_N2.dtype)
    return np.minimum(rounded_N2, limit)
