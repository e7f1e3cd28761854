"""Showing a comparison: on the terminal, as JSON with everything in it, and as CSV with one search a line."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beside_torch import provenance
from rich.table import Table

from felix_mlir.report import wide_console
from search_bench.metrics import COUNTS, FIGURES, PERCENTS, Figure, Spread
from search_bench.replay import Contestant, Replays, TableFacts
from search_bench.summary import RATIO, YARDSTICK, Means, Search, Summary

_PACKAGES = ("felix-mlir", "iree-base-compiler", "torch", "numpy", "optuna")


def show(summary: Summary, seconds_per_measurement: float) -> None:
    """Print a table per op, and one of the geometric means over all of them."""
    console = wide_console()
    for table, means in summary.per_table:
        best = f"best known {1e3 * table.best_s:.4g} ms, default {1e3 * table.default_s:.4g} ms"
        console.print(_table(f"{table.name} ({table.kind} of {table.candidates}): {best}", means, {}))
    console.print(_table(f"geometric mean over {len(summary.per_table)} ops", summary.overall, summary.ratios))
    console.print(
        "to N %: measurements until within N % of the best known candidate; s to N %: seconds of the searcher, and "
        f"{seconds_per_measurement:g} s a measurement; % after N: best known over best found in N measurements. "
        "Geometric means over seeds and their range; > where some searches were given up before they got there."
    )


def _table(title: str, means: Means, ratios: Mapping[Contestant, Spread]) -> Table:
    table = Table("searcher", title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    headings = [f"to {n} %" for n in PERCENTS] + [f"s to {n} %" for n in PERCENTS] + [f"% after {n}" for n in COUNTS]
    for heading in headings + ([f"to 95 % / {YARDSTICK}"] if ratios else []):
        table.add_column(heading, justify="right")
    for contestant, found in means.items():
        cells = [_cell(found[name], 1 if "percent" in name else 0) for name in FIGURES]
        if ratios:
            cells.append(_cell(ratios[contestant], 2))
        table.add_row(str(contestant), *cells)
    return table


def _cell(found: Spread, digits: int) -> str:
    mark = ">" if found.censored else ""
    return f"{mark}{found.mean:.{digits}f} {found.low:.{digits}f}-{found.high:.{digits}f}"


def write_json(path: Path, replays: Replays, summary: Summary, options: Mapping[str, Any]) -> None:
    """Write every search with its curve, every mean, and what it takes to do it again."""
    document = {
        **provenance(_PACKAGES),
        "options": dict(options),
        "tables": [_facts(table, replays) for table in replays.tables],
        "errors": replays.errors,
        "overall": _means(summary.overall),
        "ratio_to_yardstick": {
            "figure": RATIO,
            "yardstick": YARDSTICK,
            "ratios": {str(contestant): asdict(found) for contestant, found in summary.ratios.items()},
        },
        "per_table": [{"table": table.name, "means": _means(means)} for table, means in summary.per_table],
        "searches": [_search(search) for search in summary.searches],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")


def write_csv(path: Path, summary: Summary) -> None:
    """Write one line per search; a figure that is a lower bound has true in its column `_censored`."""
    censored = [name for name in FIGURES if "_to_" in name]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["op", "file", "holdout", "searcher", "seed", *FIGURES, *(f"{n}_censored" for n in censored)])
        for s in summary.searches:
            writer.writerow([
                s.table.name, s.table.identity.path, s.contestant.holdout, s.contestant.label, s.seed,
                *(f"{s.figures[name].value:.6g}" for name in FIGURES),
                *(str(s.figures[name].censored).lower() for name in censored),
            ])  # fmt: skip


def _facts(table: TableFacts, replays: Replays) -> dict[str, Any]:
    path = table.identity.path
    models = {holdout: model or "shipped" for (of, holdout), model in replays.models.items() if of == path}
    return {
        "op": table.name, "file": path, "digest": table.identity.digest, "task": table.identity.task,
        "root_op": table.identity.kind, "kind": table.kind, "rows": table.rows, "rows_not_expressed": table.unresolved,
        "candidates": table.candidates, "best_s": table.best_s, "best_reachable_s": table.reachable_s,
        "default_s": table.default_s, "cost_models": models,
    }  # fmt: skip


def _means(means: Means) -> list[dict[str, Any]]:
    return [
        {
            "searcher": contestant.label,
            "holdout": contestant.holdout,
            "figures": {name: asdict(found[name]) for name in FIGURES},
        }
        for contestant, found in means.items()
    ]


def _search(search: Search) -> dict[str, Any]:
    return {
        "op": search.table.name,
        "file": search.table.identity.path,
        "holdout": search.contestant.holdout,
        "searcher": search.contestant.label,
        "seed": search.seed,
        "figures": {name: _figure(figure) for name, figure in search.figures.items()},
        "latencies_s": search.curve.latencies_s,
        "search_s": [round(seconds, 6) for seconds in search.curve.search_s],
    }


def _figure(figure: Figure) -> float | dict[str, Any]:
    return {"at_least": figure.value} if figure.censored else figure.value
