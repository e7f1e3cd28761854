"""What replays come to: figures of every search, means per op and over ops, ratios to the yardstick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_bench.metrics import FIGURES, Curve, Figure, Spread, figures, ratio, spread
from search_bench.replay import Contestant, Replays, TableFacts

YARDSTICK = "evolutionary"
RATIO = "measurements_to_95"

# By contestant, then by the name of the figure.
Means = Mapping[Contestant, Mapping[str, Spread]]


@dataclass(frozen=True)
class Search:
    """One search with its figures by name."""

    table: TableFacts
    contestant: Contestant
    seed: int
    curve: Curve
    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Summary:
    """`per_table` has one entry per table of the replays, `overall` the geometric means over all of them.

    `ratios` are of measurements to 95 %, each contestant's over the yardstick's; empty when that did not compete.
    """

    searches: tuple[Search, ...]
    per_table: tuple[tuple[TableFacts, Means], ...]
    overall: Means
    ratios: Mapping[Contestant, Spread]


def summarise(replays: Replays, seconds_per_measurement: float) -> Summary:
    """Reduce replays of at least one table."""
    facts = {table.identity.path: table for table in replays.tables}
    searches = tuple(
        Search(facts[path], contestant, seed, curve, figures(curve, seconds_per_measurement))
        for (path, contestant, seed), curve in replays.curves.items()
        if path in facts
    )
    per_table = tuple((table, _means([s for s in searches if s.table is table])) for table in replays.tables)
    yardstick = next((c for c in replays.contestants if c.label == YARDSTICK), None)
    by_seed = {c: _by_seed(searches, c, RATIO) for c in replays.contestants}
    ratios = {c: ratio(by_seed[c], by_seed[yardstick]) for c in replays.contestants} if yardstick else {}
    return Summary(searches, per_table, _means(searches), ratios)


def _means(searches: list[Search] | tuple[Search, ...]) -> Means:
    contestants = dict.fromkeys(search.contestant for search in searches)
    return {c: {name: spread(_by_seed(searches, c, name)) for name in FIGURES} for c in contestants}


def _by_seed(searches: list[Search] | tuple[Search, ...], contestant: Contestant, name: str) -> dict[int, list[Figure]]:
    found: dict[int, list[Figure]] = {}
    for search in searches:
        if search.contestant == contestant:
            found.setdefault(search.seed, []).append(search.figures[name])
    return found
