"""Trying the ways to compile a whole model, before any tile size."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from felix_mlir.apply import ALTERNATIVES, DEFAULT, Alternative
from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.compiler.process import BuildOutcome
from felix_mlir.measure import Status, compare, median
from felix_mlir.records import Record
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.session import Session

# Share of the time budget the alternatives may take.
_SHARE = 0.35
_PAIRS = 9
_SECONDS = 0.3


@dataclass(frozen=True)
class AlternativeResult:
    """How an alternative did: `ratio` is the default's latency over its own, None if it was not timed."""

    alternative: Alternative
    status: str
    ratio: float | None
    message: str


def try_alternatives(stage: ModelStage, default: Build, session: Session, budget: Budget) -> list[AlternativeResult]:
    """Build and time the alternatives until they are through or have had their share of the budget.

    Returns one result for each, the default first. What an earlier run measured is not measured again.
    """
    task = f"model-{_content_hash(default.flow)}"
    known = {record.template: record for record in session.history(task)}
    flows: dict[str, Record | None] = {_content_hash(default.flow): None}
    untried = [a for a in ALTERNATIVES if a is not DEFAULT and a.name not in known]
    cores = session.target.cores
    while untried and not _share_used_up(stage, budget):
        batch, untried = untried[:cores], untried[cores:]
        session.progress.stage(f"compiling the whole model another way: {', '.join(a.name for a in batch)}")
        builds = run_parallel(cores, [partial(stage.build, alternative) for alternative in batch])
        for alternative, (build, outcome) in zip(batch, builds, strict=True):
            record = partial(session.record, task, alternative.name, {})
            known[alternative.name] = _time(stage, default, build, outcome, record, flows)
            budget.tick()
    results = [AlternativeResult(DEFAULT, Status.OK.value, 1.0, "")]
    for alternative in ALTERNATIVES:
        if alternative.name in known:
            results.append(_result(alternative, known[alternative.name]))
        elif alternative is not DEFAULT:
            results.append(
                AlternativeResult(alternative, "not tried", None, "the alternatives' share of the budget was used up")
            )
    return results


def _share_used_up(stage: ModelStage, budget: Budget) -> bool:
    if budget.seconds is None:
        return False
    next_s = stage.build_seconds + stage.interleave_seconds(2, _SECONDS)
    return budget.elapsed_s + next_s > _SHARE * budget.seconds


def _time(
    stage: ModelStage,
    default: Build,
    build: Build | None,
    outcome: BuildOutcome,
    record: partial[Record],
    flows: dict[str, Record | None],
) -> Record:
    """Check and time one alternative; `flows` has the record of each forming of dispatches met so far."""
    if build is None:
        return record(Status(outcome.status), message=outcome.message, command=shlex.join(outcome.command))
    form = _content_hash(build.flow)
    if form in flows and not _changes_code_generation(build.alternative):
        twin = flows[form]
        if twin is not None and twin.status is not Status.OK:
            return record(twin.status, message=twin.message, command=twin.command)
        same = stage.default_latency_s
        return record(
            Status.OK,
            latency_s=twin.latency_s if twin else same,
            reference_s=twin.reference_s if twin else same,
            message=f"the same program as {twin.template if twin else DEFAULT.name}",
        )
    first, second = stage.interleave([default.vmfb, build.vmfb], _PAIRS, _SECONDS)
    failed = next((m for m in (second, first) if m.status is not Status.OK), None)
    if failed is not None:
        result = record(failed.status, message=failed.message, command=failed.command)
    else:
        reference_s = median(first.samples)
        latency_s = reference_s / compare(first.samples, second.samples).ratio
        result = record(Status.OK, latency_s=latency_s, samples=second.samples, reference_s=reference_s)
    flows.setdefault(form, result)
    return result


def _changes_code_generation(alternative: Alternative) -> bool:
    """Whether an alternative may differ though its dispatches are the same: it has flags beyond preprocessing."""
    return any(not flag.startswith("--iree-preprocessing-") for flag in alternative.flags)


def _content_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _result(alternative: Alternative, record: Record) -> AlternativeResult:
    ratio = record.reference_s / record.latency_s if record.reference_s and record.latency_s else None
    return AlternativeResult(alternative, record.status.value, ratio, record.message)
