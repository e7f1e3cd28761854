"""The report of a run: report.json, and the same figures as terminal tables."""

from __future__ import annotations

import sys
from typing import TypedDict

from rich.console import Console, Group, RenderableType
from rich.table import Table

# The verdict of a run that chose schedules without measuring.
NOT_MEASURED = "not measured"


class TaskIdentity(TypedDict):
    """What a task is, for every table that lists tasks."""

    id: str
    kind: str
    iteration_space: list[int]
    element_types: str
    count: int
    share: float | None


class KernelReport(TypedDict):
    """A CUDA kernel before it runs: registers and spilled bytes of a thread, threads and shared bytes of a workgroup.

    `occupancy` is the part of a multiprocessor's warps that it keeps busy. None: no assembler was there to say it.
    """

    threads: int
    shared_bytes: int
    registers: int | None
    spilled_bytes: int | None
    occupancy: float | None


class UnmeasuredReport(TypedDict):
    """A task whose schedule was chosen without measuring it here: `basis` says by what.

    Microseconds of one launch are the cost model's prediction, or what the records say; None where that is unknown, and
    kernels are None for targets that have none.
    """

    basis: str
    default_us: float | None
    chosen_us: float | None
    default_kernel: KernelReport | None
    chosen_kernel: KernelReport | None


class TaskReport(TaskIdentity):
    """`default_us` and `tuned_us` were measured, of one launch, isolated; None where the task was not tuned."""

    template: str | None
    knobs: dict[str, int] | None
    default_us: float | None
    tuned_us: float | None
    speedup: float | None
    interval: list[float] | None
    trials: dict[str, int]
    reason: str
    unmeasured: UnmeasuredReport | None


class AlternativeReport(TypedDict):
    name: str
    status: str
    speedup: float | None
    message: str


class SketchTiming(TypedDict):
    """What an op takes in one run of the model with a sketch, its neighbours in `layout`; None if it does not work.

    `tuned_ms` is that with searched tile sizes, None where none were searched.
    """

    layout: str
    sketch: str
    ms: float | None
    tuned_ms: float | None


class StructureReport(TypedDict):
    """An op as the model has it, what computes it in the result, and what was measured of the alternatives."""

    id: str
    op: str
    iteration_space: list[int]
    count: int
    sketch: str
    timings: list[SketchTiming]


class Report(TypedDict):
    """`speedup` is the default's latency over the result's, paired in one run, with its 95 % `interval`.

    Where the verdict is NOT_MEASURED, all that takes a measurement of the model is None. `spent_s` is the wall time of
    all runs in the folder, `search_s` what the searchers, with features and cost model, took of it in the last one.
    """

    model: str
    target: str
    verdict: str
    default_ms: float | None
    tuned_ms: float | None
    speedup: float | None
    interval: list[float] | None
    alternative: str
    alternatives: list[AlternativeReport]
    structures: list[StructureReport]
    tasks: list[TaskReport]
    largest_relative_error: float | None
    tolerance: float | None
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
            _number(task["speedup"], ".2f", "x"),
            f"{task['template']}, tuned" if task["knobs"] else f"default: {task['reason']}",
        )
    return table


def _structures(structures: list[StructureReport]) -> list[RenderableType]:
    """Return the table of what ops are computed as; nothing where no op has another structure."""
    if not structures:
        return []
    table = Table("op", "loops", "count", "computed as", "ms a run, by sketch", box=None, pad_edge=False,
                  title="Structure", title_justify="left")  # fmt: skip
    for op in structures:
        timings = sorted(op["timings"], key=lambda timing: timing["ms"] or float("inf"))
        table.add_row(
            op["op"], "x".join(map(str, op["iteration_space"])), str(op["count"]), op["sketch"],
            ", ".join(map(_timing, timings)),
        )  # fmt: skip
    return [table, ""]


def _timing(timing: SketchTiming) -> str:
    text = f"{timing['sketch']} {'fails' if timing['ms'] is None else format(timing['ms'], '.3g')}"
    return text if timing["tuned_ms"] is None else f"{text} (tuned {timing['tuned_ms']:.3g})"


def render(report: Report) -> RenderableType:
    """Return the tables a terminal shows at the end of a run."""
    if report["verdict"] == NOT_MEASURED:
        return Group(
            *_structures(report["structures"]),
            _unmeasured(report["tasks"]),
            "",
            _search_share(report),
            *report["notes"],
        )
    model = Table("model", "default", "result", "speed-up", "95 % interval", box=None, pad_edge=False)
    model.add_row(
        report["model"],
        _number(report["default_ms"], ".3f", " ms"),
        _number(report["tuned_ms"], ".3f", " ms"),
        _number(report["speedup"], ".2f", "x"),
        " to ".join(f"{end:.2f}x" for end in report["interval"] or ()),
    )
    ways = Table("compiled as", "speed-up", "", box=None, pad_edge=False, title="Whole model", title_justify="left")
    for way in report["alternatives"]:
        mark = "chosen" if way["name"] == report["alternative"] else ""
        ways.add_row(way["name"], _number(way["speedup"], ".2f", "x"), mark or way["message"] or way["status"])
    return Group(
        *_structures(report["structures"]),
        ways,
        "",
        _results(report["tasks"]),
        "",
        model,
        "",
        _search_share(report),
        *report["notes"],
    )


def _unmeasured(tasks: list[TaskReport]) -> RenderableType:
    """Return what was chosen and by what, and below it the kernels of default and choice, if there are any."""
    chosen = task_table("schedule", "by")
    kernels = Table(
        "task", "kernel", "threads", "registers", "spilled", "shared", "occupancy", box=None, pad_edge=False
    )
    for task in tasks:
        about = task["unmeasured"]
        schedule = f"{task['template']}, chosen" if task["knobs"] else f"default: {task['reason']}"
        chosen.add_row(*identity_cells(task), schedule, about["basis"] if about else "")
        if about is not None:
            for name, kernel in (("default", about["default_kernel"]), ("chosen", about["chosen_kernel"])):
                if kernel is not None:
                    kernels.add_row(task["id"], name, *_kernel_cells(kernel))
    return Group(chosen, "", kernels) if kernels.rows else chosen


def _kernel_cells(kernel: KernelReport) -> tuple[str, ...]:
    return (
        str(kernel["threads"]),
        _number(kernel["registers"], "d"),
        _number(kernel["spilled_bytes"], "d", " B"),
        f"{kernel['shared_bytes']} B",
        _number(kernel["occupancy"], ".0%"),
    )


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
    return _number(value, ".1f", " us")


def _number(value: float | None, format_: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{format_}}{unit}"
