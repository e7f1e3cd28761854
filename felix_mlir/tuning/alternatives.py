"""Trying ways to compile a whole model, timed in turn with the default."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from felix_mlir.apply import DEFAULT, Alternative
from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.compiler.process import BuildOutcome
from felix_mlir.measure import Status, compare, median
from felix_mlir.records import Record
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.session import Session

# Share of the time budget that may be gone when another alternative is begun.
_SHARE = 0.6
_PAIRS = 9
_SECONDS = 0.3
# A default that takes longer is not run again beside every alternative: the result is compared with it at the end.
_LONG_S = 1.5


@dataclass(frozen=True)
class AlternativeResult:
    """How an alternative did: `ratio` is the default's latency over its own, None if it was not timed."""

    alternative: Alternative
    status: str
    ratio: float | None
    message: str


class Alternatives:
    """Builds and times alternatives of one model. What an earlier run measured is not measured again."""

    def __init__(self, stage: ModelStage, default: Build, session: Session, budget: Budget) -> None:
        self._stage = stage
        self._default = default
        self._session = session
        self._budget = budget
        self._task = f"model-{content_hash(default.flow)}"
        self._known = {record.template: record for record in session.history(self._task)}
        self._flows: dict[str, Record | None] = {content_hash(default.flow): None}

    def try_all(self, alternatives: Sequence[Alternative], share: float = _SHARE) -> list[AlternativeResult]:
        """Build and time alternatives until they are through or `share` of the budget is used up.

        Returns one result for each.
        """
        untried = [a for a in alternatives if a is not DEFAULT and a.key not in self._known]
        cores = self._session.target.cores
        while untried and not self._used_up(share):
            batch, untried = untried[:cores], untried[cores:]
            self._session.progress.stage(f"compiling the whole model another way: {', '.join(a.name for a in batch)}")
            builds = run_parallel(cores, [partial(self._stage.build, alternative) for alternative in batch])
            for alternative, (build, outcome) in zip(batch, builds, strict=True):
                record = partial(self._session.record, self._task, alternative.key, {})
                self._known[alternative.key] = self._time(build, outcome, record)
                self._budget.tick()
        return [self._result(alternative) for alternative in alternatives]

    def _result(self, alternative: Alternative) -> AlternativeResult:
        if alternative is DEFAULT:
            return AlternativeResult(DEFAULT, Status.OK.value, 1.0, "")
        record = self._known.get(alternative.key)
        if record is None:
            return AlternativeResult(
                alternative, "not tried", None, "the alternatives' share of the budget was used up"
            )
        ratio = record.reference_s / record.latency_s if record.reference_s and record.latency_s else None
        return AlternativeResult(alternative, record.status.value, ratio, record.message)

    def _used_up(self, share: float) -> bool:
        if self._budget.seconds is None:
            return False
        stage = self._stage
        # What an alternative takes is not known before; one that is slower than the default is no use.
        default_s = stage.default_latency_s
        timing_s = default_s if self._is_long else stage.interleave_seconds([default_s] * 2, _PAIRS, _SECONDS)
        next_s = stage.build_seconds + timing_s
        return self._budget.elapsed_s + next_s > share * self._budget.seconds

    def _time(self, build: Build | None, outcome: BuildOutcome, record: partial[Record]) -> Record:
        """Check and time one alternative."""
        if build is None:
            return record(Status(outcome.status), message=outcome.message, command=shlex.join(outcome.command))
        form = content_hash(build.flow)
        if form in self._flows and not _changes_code_generation(build.alternative):
            twin = self._flows[form]
            if twin is not None and twin.status is not Status.OK:
                return record(twin.status, message=twin.message, command=twin.command)
            same = self._stage.default_latency_s
            return record(
                Status.OK,
                latency_s=twin.latency_s if twin else same,
                reference_s=twin.reference_s if twin else same,
                message=f"the same program as {twin.template if twin else DEFAULT.name}",
            )
        result = self._time_alone(build, record) if self._is_long else self._time_in_turn(build, record)
        self._flows.setdefault(form, result)
        return result

    @property
    def _is_long(self) -> bool:
        return self._stage.default_latency_s > _LONG_S

    def _time_in_turn(self, build: Build, record: partial[Record]) -> Record:
        first, second = self._stage.interleave([self._default.vmfb, build.vmfb], _PAIRS, _SECONDS)
        failed = next((m for m in (second, first) if m.status is not Status.OK), None)
        if failed is not None:
            return record(failed.status, message=failed.message, command=failed.command)
        reference_s = median(first.samples)
        latency_s = reference_s / compare(first.samples, second.samples).ratio
        return record(Status.OK, latency_s=latency_s, samples=second.samples, reference_s=reference_s)

    def _time_alone(self, build: Build, record: partial[Record]) -> Record:
        found = self._stage.run(build.vmfb)
        return record(
            found.status, latency_s=found.latency_s, samples=found.samples, reference_s=self._stage.default_latency_s,
            message=found.message, command=found.command if found.message else "",
        )  # fmt: skip


def _changes_code_generation(alternative: Alternative) -> bool:
    """Whether an alternative may differ though its dispatches are the same: it has flags beyond preprocessing."""
    return any(not flag.startswith("--iree-preprocessing-") for flag in alternative.flags)


def content_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
