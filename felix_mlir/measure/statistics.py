"""What samples say: their middle and spread, and which of two programs is faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

# With fewer pairs, chance alone puts all of them on one side of 1 more often than once in 20 times.
MIN_PAIRS = 6
CONFIDENCE = 0.95
# What fewer pairs have to show, each of them: no noise makes it. For programs too slow to be timed more often.
DECISIVE = 1.5
RESAMPLES = 4000


def median(samples: Sequence[float]) -> float:
    """Return the median of one sample or more, in the unit of the samples."""
    return float(np.median(samples))


def spread(samples: Sequence[float]) -> float:
    """Return (75th percentile - 25th percentile) / median of positive samples: a part, without unit."""
    low, middle, high = np.percentile(samples, (25, 50, 75))
    return float((high - low) / middle)


class Verdict(StrEnum):
    """Whether a program is faster or slower than another beyond the noise."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"


@dataclass(frozen=True)
class Comparison:
    """How many times faster a second program is than a first.

    `low`..`high` is the 95 % interval of `ratio`, or the smallest and largest seen of fewer than MIN_PAIRS.
    `verdict` is about the second program; it is SAME if the interval contains 1, or anything up to DECISIVE where
    there are few pairs.
    """

    ratio: float
    low: float
    high: float
    verdict: Verdict


def compare(a_samples: Sequence[float], b_samples: Sequence[float], seed: int = 0) -> Comparison:
    """Compare program b with program a (the default, say), whose samples were taken in turn.

    Sample i of both must have been taken at about the same time: the ratio is the median of a[i] / b[i],
    which no slow drift can move, and its interval is a percentile bootstrap over the pairs, the same for the
    same `seed`. Raises ValueError unless both have the same number of samples, all positive.
    """
    a, b = np.asarray(a_samples, dtype=float), np.asarray(b_samples, dtype=float)
    if a.shape != b.shape or not a.size:
        raise ValueError(f"{a.size} and {b.size} samples: as many of each are needed, and at least one")
    if not (np.all(a > 0) and np.all(b > 0)):
        raise ValueError("samples must be positive")
    # Logarithms make it symmetric: exchanging a and b inverts the ratio and swaps the ends of the interval.
    ratios = np.log(a / b)
    if ratios.size < MIN_PAIRS:
        low, high = ratios.min(), ratios.max()
        gap = math.log(DECISIVE) if ratios.size > 1 else math.inf
        verdict = Verdict.FASTER if low > gap else Verdict.SLOWER if high < -gap else Verdict.SAME
        return Comparison(math.exp(np.median(ratios)), math.exp(low), math.exp(high), verdict)
    draws = np.random.default_rng(seed).choice(ratios, size=(RESAMPLES, ratios.size))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(np.median(draws, axis=1), (tail, 100 - tail))
    verdict = Verdict.FASTER if low > 0 else Verdict.SLOWER if high < 0 else Verdict.SAME
    return Comparison(math.exp(np.median(ratios)), math.exp(low), math.exp(high), verdict)
