"""Lengths of any number of texts in bounded memory: usual lengths are counted exactly, great ones more coarsely."""

from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from transformer.config import Config

IntArray = NDArray[np.int64]

EXACT = 1024  # shorter lengths have a bin each
BINS_PER_OCTAVE = 64  # beyond: a bin holds lengths that differ by less than 1.6 %
_OCTAVE_OF_EXACT = EXACT.bit_length() - 1
_BITS_OF_BIN = BINS_PER_OCTAVE.bit_length() - 1

Count = Annotated[int, Field(ge=0)]


class Histogram(Config):
    """How many texts have which length; up to 1,023 exactly, beyond to within 1.6 %.

    Longer lengths have 64 bins for each doubling: width 16 from 1,024 on, 32 from 2,048 on, and so forth, so that the
    longest text, of whatever length, makes a few thousand bins at most.
    """

    counts: tuple[Count, ...] = ()
    """Texts in each bin, from length 0 to the bin of the longest text."""
    total: Count = 0
    """Sum of all lengths, exactly."""
    longest: Count = 0
    """The greatest length, exactly; 0 without texts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.counts) != (int(_bins_of(np.array([self.longest]))[0]) + 1 if self.counts else 0):
            raise ValueError(f"The last of {len(self.counts)} bins must be that of the longest text ({self.longest}).")
        return self

    @property
    def num_texts(self) -> int:
        """Number of texts."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Average length; 0 without texts."""
        return self.total / max(1, self.num_texts)

    def quantile(self, share: float) -> int:
        """The least length that at least this share (0 to 1) of the texts do not exceed; 0 without texts.

        For lengths of 1,024 and more it is the greatest length of their bin.
        """
        assert 0 <= share <= 1
        if not self.counts:
            return 0
        cumulative = np.cumsum(self.counts)
        # The product may be a little more than the whole number that is meant: 0.07 * 100 > 7.
        place = int(np.searchsorted(cumulative, max(1, np.ceil(share * cumulative[-1] - 1e-9))))
        return min(int(self.edges()[place + 1]) - 1, self.longest)

    def edges(self) -> IntArray:
        """The least length of each bin, and last the length after the last bin: one more than there are bins."""
        bins = np.arange(len(self.counts) + 1, dtype=np.int64)
        octave, rest = np.divmod(np.maximum(bins - EXACT, 0), BINS_PER_OCTAVE)
        coarse = (rest + BINS_PER_OCTAVE) << (octave + _OCTAVE_OF_EXACT - _BITS_OF_BIN)
        return np.where(bins < EXACT, bins, coarse)

    def merged(self, other: "Histogram") -> "Histogram":
        """The histogram of the texts of both."""
        size = max(len(self.counts), len(other.counts))
        counts = _padded(self.counts, size) + _padded(other.counts, size)
        return Histogram(
            counts=tuple(counts.tolist()),
            total=self.total + other.total,
            longest=max(self.longest, other.longest),
        )


class LengthTally:
    """Collects lengths for a :class:`Histogram`."""

    def __init__(self) -> None:
        self._counts = np.zeros(EXACT, dtype=np.int64)
        self._total = self._longest = 0

    def add(self, lengths: IntArray) -> None:
        """Count the texts of these lengths (whole numbers, none negative)."""
        if len(lengths) == 0:
            return
        assert lengths.min() >= 0
        counts = np.bincount(_bins_of(lengths))
        if len(counts) > len(self._counts):
            self._counts = _padded(self._counts, len(counts))
        self._counts[: len(counts)] += counts
        self._total += int(lengths.sum())
        self._longest = max(self._longest, int(lengths.max()))

    def histogram(self) -> Histogram:
        """What has been counted so far."""
        counts = np.trim_zeros(self._counts, trim="b")
        return Histogram(counts=tuple(counts.tolist()), total=self._total, longest=self._longest)


def _bins_of(lengths: IntArray) -> IntArray:
    # Lengths are far below 2^53, so that their binary exponents are exact.
    octave = np.frexp(np.maximum(lengths, EXACT).astype(np.float64))[1].astype(np.int64) - 1
    place = (lengths >> (octave - _BITS_OF_BIN)) - BINS_PER_OCTAVE
    return np.where(lengths < EXACT, lengths, EXACT + (octave - _OCTAVE_OF_EXACT) * BINS_PER_OCTAVE + place)


def _padded(counts: IntArray | tuple[int, ...], size: int) -> IntArray:
    padded = np.zeros(size, dtype=np.int64)
    padded[: len(counts)] = counts
    return padded
