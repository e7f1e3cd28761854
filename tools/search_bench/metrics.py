"""Figures of one search, and their means over ops and spreads over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PERCENTS = (90, 95, 99)
COUNTS = (1, 8, 16, 32, 64)


@dataclass(frozen=True)
class Curve:
    """What one search measured, in order.

    `latencies_s` has None for a failure, which costs a measurement like any other. `search_s` are the seconds the
    searcher itself had taken when it asked for that measurement. `best_s` and `slowest_s` are the extremes of the
    whole table, `limit` the number of measurements at which a search that has not got there is given up.
    """

    latencies_s: tuple[float | None, ...]
    search_s: tuple[float, ...]
    best_s: float
    slowest_s: float
    limit: int

    def measurements_to(self, percent: float) -> int | None:
        """Measurements until a latency within `percent` of the best known is found; None when none is."""
        goal_s = self.best_s * 100 / percent
        hits = (n for n, s in enumerate(self.latencies_s, start=1) if s is not None and s <= goal_s * (1 + 1e-12))
        return next(hits, None)

    def percent_after(self, count: int) -> float:
        """Best known over best found in `count` measurements, in per cent; with no success yet, over the slowest."""
        found = [latency for latency in self.latencies_s[:count] if latency is not None]
        return 100 * self.best_s / min(found, default=self.slowest_s)


@dataclass(frozen=True)
class Figure:
    """One figure of one search; `censored` marks a lower bound: the search was given up there."""

    value: float
    censored: bool = False


@dataclass(frozen=True)
class Spread:
    """A geometric mean with the range it has over seeds; `censored` of `runs` searches are lower bounds."""

    mean: float
    low: float
    high: float
    censored: int
    runs: int


def figures(curve: Curve, seconds_per_measurement: float) -> dict[str, Figure]:
    """Return every figure of a search by name."""
    found: dict[str, Figure] = {}
    for percent in PERCENTS:
        reached = curve.measurements_to(percent)
        count = reached or curve.limit
        search_s = curve.search_s[min(count, len(curve.search_s)) - 1] if curve.search_s else 0.0
        found[f"measurements_to_{percent}"] = Figure(count, reached is None)
        found[f"seconds_to_{percent}"] = Figure(search_s + count * seconds_per_measurement, reached is None)
    for count in COUNTS:
        found[f"percent_after_{count}"] = Figure(curve.percent_after(count))
    return {name: found[name] for name in FIGURES}


FIGURES = (
    *(f"measurements_to_{percent}" for percent in PERCENTS),
    *(f"seconds_to_{percent}" for percent in PERCENTS),
    *(f"percent_after_{count}" for count in COUNTS),
)


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def spread(by_seed: Mapping[int, Sequence[Figure]]) -> Spread:
    """Geometric mean over the ops of each seed, then over the seeds, whose range is the spread."""
    means = [geometric_mean(figure.value for figure in ops) for ops in by_seed.values()]
    everything = [figure for ops in by_seed.values() for figure in ops]
    censored = sum(figure.censored for figure in everything)
    return Spread(geometric_mean(means), min(means), max(means), censored, len(everything))


def ratio(of: Mapping[int, Sequence[Figure]], to: Mapping[int, Sequence[Figure]]) -> Spread:
    """Spread of the ratio of two searchers' figures, op by op and seed by seed; censored where either is."""
    pairs = {seed: zip(of[seed], to[seed], strict=True) for seed in of}
    return spread({
        seed: [Figure(a.value / b.value, a.censored or b.censored) for a, b in both] for seed, both in pairs.items()
    })  # fmt: skip
