"""What live runs come to: per op, and as geometric means over ops; on the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from beside_torch import provenance
from rich.table import Table

from felix_mlir.measure import Comparison, Measurement, Status, compare
from felix_mlir.report import wide_console
from felix_mlir.target import host_name, parse_target
from search_bench.live import BASELINES, Live, OpResult, Tuned
from search_bench.metrics import Figure, Spread, spread

_PACKAGES = ("felix-mlir", "iree-base-compiler", "iree-base-runtime", "torch", "numpy")


@dataclass(frozen=True)
class Row:
    """One program of one op; `run` is None for a baseline.

    `quartiles_s` are the 25th, 50th and 75th percentile of its samples, in seconds, None where it was not timed.
    `ratios` say how many times faster it is than each baseline, turn by turn.
    """

    op: str
    program: str
    run: Tuned | None
    measured: Measurement
    quartiles_s: tuple[float, float, float] | None
    ratios: Mapping[str, Comparison]

    @property
    def label(self) -> str:
        return self.run.searcher if self.run else self.program


def rows_of(result: OpResult) -> list[Row]:
    """Return a row per program, the baselines first."""
    runs = {run.name: run for run in result.runs}
    timed = {name: found.samples for name, found in result.measured.items() if found.status is Status.OK}
    rows: list[Row] = []
    for name, found in result.measured.items():
        quartiles, ratios = None, {}
        if name in timed:
            low, middle, high = map(float, np.percentile(found.samples, (25, 50, 75)))
            quartiles = (low, middle, high)
            ratios = {base: compare(timed[base], found.samples) for base in BASELINES if base in timed}
        rows.append(Row(result.op, name, runs.get(name), found, quartiles, ratios))
    return rows


def means_of(rows: list[Row]) -> dict[str, dict[str, Spread]]:
    """Return, by baseline or searcher, the geometric mean over ops of each ratio, and its range over seeds.

    Besides the baselines there is "tiles", the speed-up of the isolated tasks.
    """
    means: dict[str, dict[str, Spread]] = {}
    for label in dict.fromkeys(row.label for row in rows):
        figures: dict[str, dict[int, list[Figure]]] = {}
        for row in (row for row in rows if row.label == label):
            values = {base: comparison.ratio for base, comparison in row.ratios.items()}
            if row.run and (tiles := row.run.task_speedup) is not None:
                values["tiles"] = tiles
            for name, value in values.items():
                figures.setdefault(name, {}).setdefault(row.run.seed if row.run else 0, []).append(Figure(value))
        means[label] = {name: spread(by_seed) for name, by_seed in figures.items()}
    return means


def shares_of(live: Live) -> dict[str, float]:
    """Return each searcher's part of the wall time of all its runs together."""
    runs = [run for result in live.ops for run in result.runs]
    return {
        searcher: sum(r.report["search_s"] for r in runs if r.searcher == searcher)
        / sum(r.wall_s for r in runs if r.searcher == searcher)
        for searcher in dict.fromkeys(run.searcher for run in runs)
    }


def show(live: Live) -> None:
    """Print a table per op, and one of the geometric means."""
    console = wide_console()
    everything: list[Row] = []
    for result in live.ops:
        everything += (rows := rows_of(result))
        table = _table(result.op, "program", "ms", "quartiles", "candidates", "searching", "error to torch")
        for row in rows:
            run = row.run
            ms = ("", "") if row.quartiles_s is None else _milliseconds(row.quartiles_s)
            table.add_row(
                row.program,
                *ms,
                str(run.report["trials"]) if run else "",
                f"{run.search_share:.1%}" if run else "",
                f"{row.measured.error:.1e}" if row.measured.error is not None else row.measured.status.value,
                *(f"{row.ratios[base].ratio:.2f}" if base in row.ratios else "" for base in BASELINES),
                f"{run.task_speedup:.2f}" if run and run.task_speedup else "",
            )
        console.print(table)
    shares = shares_of(live)
    table = _table(f"geometric mean over {len(live.ops)} ops", "program", "runs", "searching")
    for label, found in means_of(everything).items():
        runs = max((figure.runs for figure in found.values()), default=0)
        cells = [_cell(found[name]) if name in found else "" for name in (*BASELINES, "tiles")]
        table.add_row(label, str(runs), f"{shares[label]:.1%}" if label in shares else "", *cells)
    console.print(table)
    console.print(
        "ms: median over turns in which all programs of an op were timed; x NAME: how many times faster than that; "
        "x tiles: how much faster tile sizes alone made the isolated task; searching: part of a run's wall time that "
        "search, features and cost model took."
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for column in (*columns, *(f"x {name}" for name in (*BASELINES, "tiles"))):
        table.add_column(column, justify="left" if column == "program" else "right")
    return table


def _milliseconds(quartiles_s: tuple[float, float, float]) -> tuple[str, str]:
    low, middle, high = (1e3 * seconds for seconds in quartiles_s)
    return f"{middle:.4g}", f"{low:.4g}-{high:.4g}"


def _cell(found: Spread) -> str:
    return f"{found.mean:.2f}" + ("" if found.low == found.high else f" {found.low:.2f}-{found.high:.2f}")


def write_json(path: Path, live: Live, options: Mapping[str, Any]) -> None:
    """Write every sample, run and mean, and what it takes to do it again."""
    rows = [row for result in live.ops for row in rows_of(result)]
    document = {
        **provenance(_PACKAGES),
        "options": dict(options),
        "host": host_name(parse_target("cpu")),
        "overall": {label: {n: asdict(f) for n, f in found.items()} for label, found in means_of(rows).items()},
        "search_share": shares_of(live),
        "programs": [_row(row) for row in rows],
        "errors": live.errors,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")


def _row(row: Row) -> dict[str, Any]:
    found = row.measured
    entry: dict[str, Any] = {
        "op": row.op, "program": row.program, "status": found.status.value, "message": found.message,
        "agrees_with_torch": found.status is Status.OK, "relative_error": found.error,
        "quartiles_s": row.quartiles_s, "samples_s": found.samples,
        "times_faster_than": {base: asdict(comparison) for base, comparison in row.ratios.items()},
    }  # fmt: skip
    if run := row.run:
        entry |= {
            "searcher": run.searcher, "seed": run.seed, "wall_s": run.wall_s, "search_s": run.report["search_s"],
            "search_share": run.search_share, "candidates": run.report["trials"], "task_speedup": run.task_speedup,
            "alternative": run.report["alternative"], "verdict": run.report["verdict"],
            "reported_speedup": run.report["speedup"], "tasks": run.report["tasks"], "notes": run.report["notes"],
        }  # fmt: skip
    return entry
