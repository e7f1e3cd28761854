"""What sets two schedules of a task apart, in terms a reader knows: from features alone, whatever the operator is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from felix_mlir.features.machine import CACHES

# The terms of a bound in words.
TERM_NAMES = {
    "compute": "arithmetic", "l1": "L1 cache", "l2": "L2 cache", "l3": "L3 cache", "memory": "memory",
    "launch": "the launch itself",
}  # fmt: skip
# Quantities nearer to each other than this differ by nothing worth a line.
_SMALLEST_RATIO = 1.02
# Terms of a bound below this part of the largest one count as equal.
_DELAYING = 0.05


class Difference(TypedDict):
    """`unit` is seconds, bytes, workgroups, share (of 1) or ratio; `default_is_worse` None where neither is better."""

    what: str
    unit: str
    default: float
    chosen: float
    default_is_worse: bool | None


@dataclass(frozen=True)
class _Quantity:
    """`better` is 1 where more is better, -1 where less is, 0 where neither; less than `floor` counts as `floor`."""

    what: str
    unit: str
    better: int
    floor: float = 1e-9


_QUANTITIES = {
    "lane_use": _Quantity("vector lanes in use", "share", 1, 0.05),
    "cut": _Quantity("iterations in cut-off tiles", "share", -1, 0.05),
    "padding": _Quantity("iterations if cut-off tiles were whole, over those there are", "ratio", -1),
    # Only what does not fit into the registers has to be stored and loaded again.
    "of_registers": _Quantity("vector registers wanted, over those there are", "ratio", -1, 1.0),
    "workgroups": _Quantity("workgroups", "workgroups", 0),
    "core_use": _Quantity("cores kept busy", "share", 1, 0.05),
    "imbalance": _Quantity("largest workgroup over the average one", "ratio", -1),
    **{f"{cache}_traffic": _Quantity(f"bytes moved into {cache.upper()}", "bytes", -1, 1.0) for cache in CACHES},
}


def quantities(features: Mapping[str, float]) -> dict[str, float]:
    """Sum up the features of a schedule, by name, to quantities of the whole dispatch, by key.

    A stage counts by its iterations, its worst tile level for it.
    """
    stages = {name.removesuffix("/iterations"): n for name, n in features.items() if name.endswith("/iterations")}
    whole = sum(stages.values())

    def of(stage: str, last: str) -> list[float]:
        return [value for name, value in features.items() if name.startswith(f"{stage}/") and name.endswith(last)]

    def mean(worst: Mapping[str, float]) -> float:
        return sum(stages[stage] * value for stage, value in worst.items()) / whole

    return {
        "lane_use": 1 / mean({stage: 1 / features[f"{stage}/lane_use"] for stage in stages}),
        "cut": mean({stage: _cut(stage, features) for stage in stages}),
        "padding": mean({stage: max(of(stage, "/padding"), default=1.0) for stage in stages}),
        "of_registers": max(features[f"{stage}/of_registers"] for stage in stages),
        **{name: features[f"dispatch/{name}"] for name in ("workgroups", "core_use", "imbalance")},
        **{f"{cache}_traffic": sum(features[f"{stage}/{cache}/traffic"] for stage in stages) for cache in CACHES},
    }


def _cut(stage: str, features: Mapping[str, float]) -> float:
    """Share of a stage's iterations in tiles cut off in some loop, at the level where that is most."""
    whole: dict[str, float] = {}
    for name, value in features.items():
        parts = name.split("/")
        if parts[0] == stage and parts[-1] == "cut":
            whole[parts[1]] = whole.get(parts[1], 1.0) * (1 - value)
    return 1 - min(whole.values(), default=1.0)


def differences(default: Mapping[str, float], chosen: Mapping[str, float]) -> list[Difference]:
    """Compare two schedules by their `quantities` and the seconds of the bound's terms, what differs most first."""
    # A term far below the slowest one delays nothing.
    floor = _DELAYING * max(chosen[name] for name in TERM_NAMES)
    terms = {name: _Quantity(f"{words} time", "seconds", -1, floor) for name, words in TERM_NAMES.items()}
    known = {**_QUANTITIES, **terms}
    found = [(quantity, default[name], chosen[name]) for name, quantity in known.items()]
    weighed = [(_log_ratio(*triple), triple) for triple in found]
    weighed.sort(key=lambda pair: -abs(pair[0]))
    return [
        Difference(
            what=quantity.what,
            unit=quantity.unit,
            default=before,
            chosen=after,
            default_is_worse=quantity.better * log_ratio < 0 if quantity.better else None,
        )
        for log_ratio, (quantity, before, after) in weighed
        if abs(log_ratio) > math.log(_SMALLEST_RATIO)
    ]


def _log_ratio(quantity: _Quantity, default: float, chosen: float) -> float:
    return math.log(max(default, quantity.floor) / max(chosen, quantity.floor))
