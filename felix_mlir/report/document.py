"""The report of a run: report.json, and the same figures as terminal tables."""

from __future__ import annotations

import sys
from typing import TypedDict

from rich.console import Console, Group, RenderableType
from rich.table import Table


class TaskIdentity(TypedDict):
    """What a task is, for every table that lists tasks."""

    id: str
    kind: str
    iteration_space: list[int]
    element_types: str
    count: int
    share: float | None


class TaskReport(TaskIdentity):
    """`default_us` and `tuned_us` are of one launch, isolated; None where the task was not tuned."""

    template: str | None
    knobs: dict[str, int] | None
    default_us: float | None
    tuned_us: float | None
    speedup: float | None
    interval: list[float] | None
    trials: dict[str, int]
    reason: str


class AlternativeReport(TypedDict):
    name: str
    status: str
    speedup: float | None
    message: str


class Report(TypedDict):
    """`speedup` is the default's latency over the result's, paired in one run, with its 95 % `interval`.

    `spent_s` is the wall time of all runs in the folder, `search_s` what the searchers, with features and cost model,
    took of it in the last one.
    """

    model: str
    target: str
    verdict: str
    default_ms: float
    tuned_ms: float
    speedup: float
    interval: list[float]
    alternative: str
    alternatives: list[AlternativeReport]
    tasks: list[TaskReport]
    largest_relative_error: float
    tolerance: float
    budget_s: float | None
    spent_s: float
    search_s: float
    trials: int
    search: str
    seed: int
    files: dict[str, str]
    notes: list[str]


def task_table(*columns: str) -> Table:
    """Return an empty table of tasks: the columns of `identity_cells`, then `columns`."""
    identity = ("task", "root op", "iteration space", "types", "count", "share")
    return Table(*identity, *columns, box=None, pad_edge=False)


def identity_cells(task: TaskIdentity) -> tuple[str, ...]:
    """Return the cells that say which task a row is about."""
    space = "x".join(map(str, task["iteration_space"]))
    share = "" if task["share"] is None else f"{task['share']:.1%}"
    return task["id"], task["kind"], space, task["element_types"], str(task["count"]), share


def _results(tasks: list[TaskReport]) -> Table:
    table = task_table("default", "tuned", "speed-up", "schedule")
    for task in tasks:
        table.add_row(
            *identity_cells(task),
            _microseconds(task["default_us"]),
            _microseconds(task["tuned_us"]),
            "" if task["speedup"] is None else f"{task['speedup']:.2f}x",
            f"{task['template']}, tuned" if task["knobs"] else f"default: {task['reason']}",
        )
    return table


def render(report: Report) -> RenderableType:
    """Return the tables a terminal shows at the end of a run."""
    model = Table("model", "default", "result", "speed-up", "95 % interval", box=None, pad_edge=False)
    low, high = report["interval"]
    model.add_row(
        report["model"],
        f"{report['default_ms']:.3f} ms",
        f"{report['tuned_ms']:.3f} ms",
        f"{report['speedup']:.2f}x",
        f"{low:.2f}x to {high:.2f}x",
    )
    ways = Table("compiled as", "speed-up", "", box=None, pad_edge=False, title="Whole model", title_justify="left")
    for way in report["alternatives"]:
        speedup = "" if way["speedup"] is None else f"{way['speedup']:.2f}x"
        mark = "chosen" if way["name"] == report["alternative"] else ""
        ways.add_row(way["name"], speedup, mark or way["message"] or way["status"])
    return Group(ways, "", _results(report["tasks"]), "", model, "", _search_share(report), *report["notes"])


def _search_share(report: Report) -> str:
    search_s, spent_s = report["search_s"], report["spent_s"]
    return f"search, features and model took {search_s:.1f} s of {spent_s:.1f} s ({search_s / spent_s:.0%})"


def show(report: Report) -> None:
    """Print the report's tables to standard output."""
    wide_console().print(render(report))


def wide_console() -> Console:
    """Return a console on standard output; where that is no terminal, rows are not folded."""
    return Console(width=None if sys.stdout.isatty() else 200)


def _microseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} us"
