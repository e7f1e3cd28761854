"""What a run leaves behind: the manifest (how to apply it) and the report (what was found)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from felix_mlir.apply import MANIFEST_FORMAT
from felix_mlir.measure import compare, median
from felix_mlir.options import TuneOptions
from felix_mlir.report import AlternativeReport, Report, TaskReport
from felix_mlir.tasks import Task
from felix_mlir.tuning.alternatives import AlternativeResult
from felix_mlir.tuning.finish import Outcome
from felix_mlir.tuning.session import Session
from felix_mlir.tuning.task_tuner import Choice, TaskTuner
from felix_mlir.tuning.workspace import Workspace

_PACKAGES = ("felix-mlir", "iree-base-compiler", "iree-base-runtime", "torch-mlir", "torch")


def make_manifest(source: str, options: TuneOptions, session: Session, outcome: Outcome) -> dict[str, Any]:
    """Return what `felix-mlir compile --tuned` needs to apply this result again, and where it came from."""
    return {
        "format": MANIFEST_FORMAT,
        "model": source,
        "target": session.target.name,
        "seed": options.seed,
        "host": session.host,
        "versions": {name: version(name) for name in _PACKAGES},
        "alternative": outcome.build.alternative.name,
        "flags": [*session.target.compile_flags, *outcome.build.alternative.flags],
        "tasks": {
            id_: {
                "template": choice.candidate.template,
                "knobs": dict(choice.candidate.values),
                "configuration": choice.configuration.to_json(),
            }
            for id_, choice in outcome.choices.items()
            if outcome.winner == "tuned" and choice.candidate is not None and choice.configuration is not None
        },
    }  # fmt: skip


def make_report(
    source: str,
    options: TuneOptions,
    workspace: Workspace,
    tolerance: float,
    outcome: Outcome,
    alternatives: Sequence[AlternativeResult],
    tasks: Sequence[Task],
    tuners: Mapping[str, TaskTuner],
    skipped: Mapping[str, str],
    notes: Sequence[str],
) -> Report:
    """Return report.json."""
    default, result = outcome.measured["default"], outcome.measured[outcome.winner]
    gain = compare(default.samples, result.samples)
    files = {
        "tuned": workspace.tuned, "default": workspace.default, "records": options.db or workspace.records,
        "manifest": workspace.manifest, "report": workspace.report,
    }  # fmt: skip
    return Report(
        model=source,
        target=options.target,
        verdict="default kept" if outcome.winner == "default" else gain.verdict.value,
        default_ms=1e3 * median(default.samples),
        tuned_ms=1e3 * median(default.samples) / gain.ratio,
        speedup=gain.ratio,
        interval=[gain.low, gain.high],
        alternative=outcome.build.alternative.name,
        alternatives=[_alternative_report(alternative) for alternative in alternatives],
        tasks=[
            _task_report(task, outcome.choices.get(task.id), tuners.get(task.id), skipped.get(task.id, task.reason))
            for task in tasks
        ],
        largest_relative_error=result.error or 0.0,
        tolerance=tolerance,
        budget_s=options.budget_s,
        spent_s=workspace.state.spent_s,
        search_s=sum(tuner.search_s for tuner in tuners.values()),
        trials=workspace.state.trials,
        search=options.search,
        seed=options.seed,
        files={name: str(path) for name, path in files.items()},
        notes=list(notes),
    )  # fmt: skip


def _alternative_report(result: AlternativeResult) -> AlternativeReport:
    return AlternativeReport(
        name=result.alternative.name, status=result.status, speedup=result.ratio, message=result.message
    )


def _task_report(task: Task, choice: Choice | None, tuner: TaskTuner | None, skipped: str) -> TaskReport:
    candidate = choice.candidate if choice else None
    return TaskReport(
        id=task.id,
        kind=task.kind,
        iteration_space=list(task.iteration_space),
        element_types=task.element_types,
        count=task.count,
        share=task.share,
        template=candidate.template if candidate else task.tunable.templates[0].name if task.tunable else None,
        knobs=dict(candidate.values) if candidate else None,
        default_us=1e6 * choice.default_s if choice else None,
        tuned_us=1e6 * choice.chosen_s if choice else None,
        speedup=choice.ratio if choice else None,
        interval=list(choice.interval) if choice else None,
        trials={status.value: number for status, number in tuner.counts.items()} if tuner else {},
        reason=choice.reason if choice else skipped,
    )
