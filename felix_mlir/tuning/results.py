"""What a run found: report.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from felix_mlir.measure import Status, compare, median
from felix_mlir.report import (
    NOT_MEASURED,
    AlternativeReport,
    Report,
    SketchTiming,
    StructureReport,
    TaskReport,
)
from felix_mlir.tasks import Task
from felix_mlir.tuning.alternatives import AlternativeResult
from felix_mlir.tuning.decision import Choice, Decision
from felix_mlir.tuning.finish import Outcome, Result
from felix_mlir.tuning.request import RunRequest
from felix_mlir.tuning.structures import OpStructure
from felix_mlir.tuning.task_tuner import TaskTuner


@dataclass(frozen=True)
class _Comparison:
    """What a report says of the model as a whole; None where nothing was measured."""

    verdict: str
    default_ms: float | None = None
    tuned_ms: float | None = None
    speedup: float | None = None
    interval: list[float] | None = None
    largest_relative_error: float | None = None
    tolerance: float | None = None


def make_report(
    request: RunRequest,
    tolerance: float,
    outcome: Outcome,
    alternatives: Sequence[AlternativeResult],
    structures: Sequence[OpStructure],
    tasks: Sequence[Task],
    tuners: Mapping[str, TaskTuner],
    skipped: Mapping[str, str],
    notes: Sequence[str],
) -> Report:
    """Return report.json."""
    default, result = outcome.measured["default"], outcome.measured[outcome.winner]
    gain = compare(default.samples, result.samples)
    rows = [
        _measured_row(task, outcome.choices.get(task.id), tuners.get(task.id), skipped.get(task.id, task.reason))
        for task in tasks
    ]
    comparison = _Comparison(
        verdict="default kept" if outcome.winner == "default" else gain.verdict.value,
        default_ms=1e3 * median(default.samples),
        tuned_ms=1e3 * median(default.samples) / gain.ratio,
        speedup=gain.ratio,
        interval=[gain.low, gain.high],
        largest_relative_error=result.error or 0.0,
        tolerance=tolerance,
    )
    search_s = sum(tuner.search_s for tuner in tuners.values())
    tried = [_alternative_report(alternative) for alternative in alternatives]
    ops = [_structure_report(structure) for structure in structures]
    return _report(request, outcome, comparison, tried, ops, rows, search_s, notes)


def make_unmeasured_report(
    request: RunRequest,
    result: Result,
    structures: Sequence[OpStructure],
    rows: list[TaskReport],
    proposed: int,
    search_s: float,
    notes: Sequence[str],
) -> Report:
    """Return the report.json of a run that measured nothing: `rows` say what of the tasks, for which `proposed`
    candidates were proposed.
    """
    ops = [_structure_report(structure) for structure in structures]
    report = _report(request, result, _Comparison(NOT_MEASURED), [], ops, rows, search_s, notes)
    report["trials"] = proposed
    return report


def _report(
    request: RunRequest,
    result: Result,
    comparison: _Comparison,
    alternatives: list[AlternativeReport],
    structures: list[StructureReport],
    rows: list[TaskReport],
    search_s: float,
    notes: Sequence[str],
) -> Report:
    options, workspace = request.options, request.workspace
    files = {
        "tuned": workspace.tuned, "default": workspace.default, "records": options.db or workspace.records,
        "configurations": workspace.configurations, "schedules": workspace.schedules, "spec": workspace.spec,
        "manifest": workspace.manifest, "report": workspace.report,
    }  # fmt: skip
    return Report(
        model=request.source,
        target=options.target,
        verdict=comparison.verdict,
        default_ms=comparison.default_ms,
        tuned_ms=comparison.tuned_ms,
        speedup=comparison.speedup,
        interval=comparison.interval,
        alternative=result.build.alternative.name,
        alternatives=alternatives,
        structures=structures,
        tasks=rows,
        largest_relative_error=comparison.largest_relative_error,
        tolerance=comparison.tolerance,
        budget_s=options.budget_s,
        spent_s=workspace.state.spent_s,
        search_s=search_s,
        trials=workspace.state.trials,
        search=options.search,
        seed=options.seed,
        files={name: str(path) for name, path in files.items()},
        notes=list(notes),
    )


def _alternative_report(result: AlternativeResult) -> AlternativeReport:
    return AlternativeReport(
        name=result.alternative.name, status=result.status, speedup=result.ratio, message=result.message
    )


def _structure_report(structure: OpStructure) -> StructureReport:
    root = structure.options.root
    return StructureReport(
        id=root.id,
        op=root.name.removeprefix("linalg."),
        iteration_space=list(root.extents),
        count=len(root.locations),
        sketch=structure.sketch,
        timings=[
            SketchTiming(
                layout=layout.value,
                sketch=name,
                ms=1e3 * seconds if math.isfinite(seconds) else None,
                tuned_ms=1e3 * tuned_s if (tuned_s := structure.tuned.get((layout, name))) is not None else None,
            )
            for (layout, name), seconds in structure.seconds.items()
        ],
    )


def task_report(task: Task, decision: Decision | None, counts: Mapping[Status, int], skipped: str) -> TaskReport:
    """Return what is said of any task, with nothing measured; `skipped` is why there is no decision."""
    candidate = decision.candidate if decision else None
    return TaskReport(
        id=task.id,
        kind=task.kind,
        iteration_space=list(task.iteration_space),
        element_types=task.element_types,
        count=task.count,
        share=None,
        template=candidate.template if candidate else task.tunable.templates[0].name if task.tunable else None,
        knobs=dict(candidate.values) if candidate else None,
        default_us=None,
        tuned_us=None,
        speedup=None,
        interval=None,
        trials={status.value: number for status, number in counts.items()},
        reason=decision.reason if decision else skipped,
        unmeasured=None,
    )


def _measured_row(task: Task, choice: Choice | None, tuner: TaskTuner | None, skipped: str) -> TaskReport:
    row = task_report(task, choice, tuner.counts if tuner else {}, skipped)
    row["share"] = task.share
    if choice is not None:
        row["default_us"], row["tuned_us"] = 1e6 * choice.default_s, 1e6 * choice.chosen_s
        row["speedup"], row["interval"] = choice.ratio, list(choice.interval)
    return row
