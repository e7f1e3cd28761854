"""`felix-mlir explain`: why each task of a finished run ended with its schedule, for a reader of tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from felix_mlir.report import StructureReport, wide_console
from felix_mlir.tuning.explain import ExplainedSchedule, ExplainedTask, Explanation, explain_run
from felix_mlir.tuning.lost import TERM_NAMES

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def explain_folder(directory: Path, only: str | None) -> Explanation:
    """Explain the run in `directory`, or its task `only`; raises RequestError and WorkError."""
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        return explain_run(directory, Path(folder), only)


def show_explanation(explanation: Explanation) -> None:
    """Print a sentence per task and, where it was tuned, what the sentence stands on."""
    console = wide_console()
    for op in explanation["structures"]:
        console.print(structure_line(op), markup=False, highlight=False, soft_wrap=True)
    for task in explanation["tasks"]:
        console.print(headline(task), style="bold", markup=False, highlight=False, soft_wrap=True)
        if task["chosen"] is not None:
            _show_details(console, task, task["chosen"])


def structure_line(op: StructureReport) -> str:
    """Return one sentence on an op of the model: what computes it, and what the other structures took there."""
    head = f"{op['op']} {'x'.join(map(str, op['iteration_space']))}, {op['count']} in the model: {op['sketch']}"
    times = sorted((t["tuned_ms"] or t["ms"], t["sketch"], t["layout"]) for t in op["timings"] if t["ms"] is not None)
    own = [ms for ms, sketch, _ in times if sketch == op["sketch"]]
    others = [time for time in times if time[1] != op["sketch"]]
    if not own:
        return f"{head}, not measured by itself"
    told = ", ".join(f"{sketch} ({layout}) {ms / min(own):.2f}x" for ms, sketch, layout in others)
    return f"{head}, {_time(1e-3 * min(own))} a run" + (f"; others: {told}" if told else "")


def headline(task: ExplainedTask) -> str:
    """Return one sentence on a task: what was gained, what bounds it now, and where the default lost most."""
    return f"{task['kind']} {task['id']}: {'; '.join(_clauses(task))}"


def _clauses(task: ExplainedTask) -> Iterator[str]:
    default_us, chosen_us, lost = task["default_us"], task["chosen_us"], task["lost"]
    if default_us is None or chosen_us is None:
        yield f"not tuned, {task['reason']}" if task["keeps_default"] else "chosen without measuring"
        return
    if task["keeps_default"]:
        yield f"{_time(1e-6 * default_us)}, keeps the default: {task['reason']}"
    elif lost is not None:
        yield f"{_time(1e-6 * default_us)} -> {_time(1e-6 * chosen_us)} ({lost['ratio']:.2f}x)"
        if not task["is_used"]:
            yield "tuned.vmfb does not use it"
    if (chosen := task["chosen"]) is not None:
        yield f"bound by {TERM_NAMES[chosen['bound_by']]} ({chosen['bound_share']:.0%} of the bound)"
    found = lost["differences"] if lost is not None else []
    if (worst := next((d for d in found if d["default_is_worse"]), None)) is not None:
        default, now = _value(worst["default"], worst["unit"]), _value(worst["chosen"], worst["unit"])
        yield f"the default lost on {worst['what']} ({default}, now {now})"
    if not task["keeps_default"] and task["reason"]:
        yield task["reason"]


def _show_details(console: Console, task: ExplainedTask, chosen: ExplainedSchedule) -> None:
    knobs = Table("knob", "default", "chosen", "when 10 % larger, predicted", box=None, pad_edge=False)
    for name, knob in task["knobs"].items():
        knobs.add_row(name, str(knob["default"] or ""), str(knob["chosen"]), _slower(1.1 ** knob["gradient"]))
    console.print(f"\nschedule ({task['template']})", knobs, "", _times(task, chosen), "")
    if task["lost"] and task["lost"]["differences"]:
        table = Table("what differs most", "default", "chosen", box=None, pad_edge=False)
        for difference in task["lost"]["differences"]:
            cells = (_value(difference[side], difference["unit"]) for side in ("default", "chosen"))
            table.add_row(difference["what"], *cells)
        console.print(table, "")
    for active in task["constraints"]:
        line = f"no {active['step']} {active['knob']} ({active['size']}): {active['message']}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for move in task["moves"]:
        line = f"{move['knob']} = {move['size']} instead: predicted {_slower(move['ratio'])}"
        console.print(line, markup=False, highlight=False)
    console.print()


def _times(task: ExplainedTask, chosen: ExplainedSchedule) -> Table:
    """What was measured and predicted, and the bound with the times its resources would take alone."""
    default = chosen if task["keeps_default"] else task["default"]
    table = Table("time of a launch", "default", "chosen", box=None, pad_edge=False)
    measured = (task["default_us"], task["chosen_us"])
    table.add_row("measured", *("" if us is None else _time(1e-6 * us) for us in measured))
    sides = (default, chosen)
    table.add_row("predicted", *(_predicted(side) for side in sides))
    table.add_row("at least (bound)", *("" if side is None else _time(1e-6 * side["bound_us"]) for side in sides))
    for name in chosen["terms"]:
        times = ("" if side is None else _time(side["terms"][name]) for side in sides)
        table.add_row(f"  {TERM_NAMES[name]} alone", *times)
    return table


def _predicted(side: ExplainedSchedule | None) -> str:
    return "" if side is None else f"{_time(1e-6 * side['predicted_us'])} +- {_time(1e-6 * side['deviation_us'])}"


def _slower(ratio: float) -> str:
    """A ratio of latencies in words."""
    change = ratio - 1
    return "no change" if abs(change) < 5e-4 else f"{abs(change):.1%} {'slower' if change > 0 else 'faster'}"


def _value(value: float, unit: str) -> str:
    if unit == "seconds":
        return _time(value)
    if unit == "share":
        return f"{value:.0%}"
    if unit == "bytes":
        scale, name = next(((s, n) for s, n in _SIZES if value >= s), (1, "bytes"))
        return f"{value / scale:.3g} {name}"
    return f"{value:.3g}"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"
