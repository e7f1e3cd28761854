"""What a tuning run is asked for: the one place where defaults are written down."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.errors import RequestError

_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class TuneOptions:
    """A tuning request.

    `out` is the folder of all results; a run that finds earlier results there goes on from them. `budget_s` is the
    wall-clock time, in seconds, for everything done in `out` over all runs (None: no limit), `trials` the number of
    candidates the record store is to hold of the model's tasks (None: no limit). `db` is the record store,
    `out`/records.db if None. Without `measure`, nothing runs: schedules are chosen by what the store knows, else by
    the cost model, which `trials` candidates are shown.
    """

    out: Path
    target: str = "cpu"
    budget_s: float | None = 420.0
    trials: int | None = None
    seed: int = 0
    search: str = "gradient"
    db: Path | None = None
    measure: bool = True


def parse_duration(text: str) -> float:
    """Return seconds from '90', '30s', '7m', '1h' or '1h30m'; raises RequestError."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise RequestError(f"'{text}' is no duration: write it like 30s, 7m or 1h")
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise RequestError(f"the budget '{text}' leaves no time: give at least a few seconds")
    return seconds


def choose_budget(budget: str | float | None, trials: int | None) -> float | None:
    """Return the time limit in seconds: what was asked for, else the default unless `trials` limits the run."""
    if budget is None:
        return TuneOptions.budget_s if trials is None else None
    return parse_duration(str(budget))
