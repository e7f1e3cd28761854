"""Choosing the schedule of one task without measuring: by the records there are, else by prediction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.apply import tuned_task
from felix_mlir.errors import WorkError
from felix_mlir.gpu import KernelFigures
from felix_mlir.measure import Status
from felix_mlir.search import Candidate, SearcherFactory
from felix_mlir.tasks import Task, TunableTask
from felix_mlir.tuning.decision import Decision
from felix_mlir.tuning.known import Known, read_known
from felix_mlir.tuning.programs import TaskPrograms, search_problem
from felix_mlir.tuning.session import Session
from felix_mlir.tuning.static_check import Checked, StaticChecker

if TYPE_CHECKING:
    from felix_mlir.tuning.proposer import Proposer

# The best few are built at once: most of the time the first of them is sound.
_FEW = 4
# What gained less was lucky where it was measured, and is within the model's error where it was not.
_SMALLEST_GAIN = 1.02


@dataclass(frozen=True, kw_only=True)
class UnmeasuredChoice(Decision):
    """A decision and what it stands on: `basis` names the records or the model.

    Latencies are seconds per launch, as predicted or as recorded; None where nobody can say.
    """

    basis: str
    default_s: float | None = None
    chosen_s: float | None = None
    default_kernel: KernelFigures | None = None
    chosen_kernel: KernelFigures | None = None


class TaskChooser:
    """Takes the best schedule of a tunable task that is sound.

    `counts` has how the candidates ended that were looked at, `proposed` how many were, and `search_s` the seconds that
    searcher and model have taken. Where the records do not decide, it raises felix_mlir.search.UnsearchableError when
    the searcher, and any of felix_mlir.cost.NO_FEATURES when the model cannot serve the dispatch.
    """

    def __init__(
        self, task: Task, session: Session, checker: StaticChecker, factory: SearcherFactory, seed: int, folder: Path
    ) -> None:
        if task.tunable is None:
            raise ValueError(f"task {task.id} is not tunable: {task.reason}")
        self.task = task
        self._tunable: TunableTask = task.tunable
        self._session = session
        self._checker = checker
        self._programs = TaskPrograms(task, session.target, 1, folder)
        self.counts: Counter[Status] = Counter()
        self.proposed = 0
        self.search_s = 0.0
        # Of any host: without measuring, what was measured elsewhere is the best there is.
        records = session.store.find(task=task.id, target=session.target.name, compiler=session.compiler)
        self._known: Known = read_known(records, self._tunable.templates)
        self._proposer: Proposer | None = None
        if not self.is_measured:
            with self._searching():
                self._proposer = self._make_proposer(factory, seed)

    @property
    def is_measured(self) -> bool:
        """Whether the records decide, and nothing has to be proposed."""
        return bool(self._known.measured)

    @property
    def cost_s(self) -> float | None:
        """Seconds of a run of the model that the task's default is predicted to take; None where nobody can say."""
        default_s = self._proposer.default_s if self._proposer else self._known.default_s
        return None if default_s is None else default_s * self.task.count

    def teach(self) -> None:
        """Show the cost model what the records say, for the tasks they say nothing of."""
        from felix_mlir.cost import NO_FEATURES
        from felix_mlir.tuning.predictor import Predictor

        with self._searching(), suppress(*NO_FEATURES):
            predictor = Predictor(self.task.id, self._tunable, self._session.cost_model())
            for template in self._tunable.templates:
                ran = [(ratio, c.values) for ratio, c in self._known.measured if c.template == template.name]
                seconds = [ratio * self._known.default_s for ratio, _ in ran]
                predictor.observe(template.name, [values for _, values in ran], seconds)

    def choose(self, count: int) -> UnmeasuredChoice:
        """Return the choice among what was measured, else among `count` new candidates; raises WorkError."""
        (default,) = self._checker.check(self._tunable, [self._programs.default], [None])
        if default.status is not Status.OK:
            raise WorkError(f"building it alone: {default.message} (reproduce: {default.command})")
        if self._proposer is None:
            basis, default_s = f"records of {self._known.host}", self._known.default_s
            ranked = [(ratio * default_s, candidate) for ratio, candidate in self._known.measured]
            nothing = f"of {len(ranked)} measured candidates none is faster"
        else:
            proposer, basis = self._proposer, "prediction"
            with self._searching():
                ranked = proposer.propose(count)
            self.proposed += len(ranked)
            default_s = self._corrected_s(proposer.default_s, proposer.own, default.kernel)
            nothing = f"of {len(ranked)} candidates none is predicted to be faster"
        better = [pair for pair in ranked if _is_faster(pair[0], default_s)]
        better = [pair for pair in better if self._programs.configuration(pair[1]) != self._tunable.default]
        found = self._first_sound(better, default_s)
        if found is None:
            return UnmeasuredChoice(
                candidate=None, configuration=None, reason="no promising candidate is sound" if better else nothing,
                basis=basis, default_s=default_s, chosen_s=default_s, default_kernel=default.kernel,
                chosen_kernel=default.kernel,
            )  # fmt: skip
        chosen_s, candidate, kernel = found
        return UnmeasuredChoice(
            candidate=candidate, configuration=self._programs.configuration(candidate), basis=basis,
            default_s=default_s, chosen_s=chosen_s, default_kernel=default.kernel, chosen_kernel=kernel,
        )  # fmt: skip

    def _first_sound(
        self, ranked: Sequence[tuple[float, Candidate]], default_s: float | None
    ) -> tuple[float, Candidate, KernelFigures | None] | None:
        """Return the best of the first few candidates that are sound, or of the next few, and so on.

        Of predicted ones it is the best now that their code is known, if that is still better than the default.
        """
        for start in range(0, len(ranked), _FEW):
            few = ranked[start : start + _FEW]
            sound = [
                (self._corrected_s(seconds, candidate, checked.kernel) or seconds, candidate, checked.kernel)
                for (seconds, candidate), checked in zip(few, self._check([c for _, c in few]), strict=True)
                if checked.status is Status.OK
            ]
            better = [one for one in sound if _is_faster(one[0], default_s)]
            if better:
                return min(better, key=lambda one: one[0])
        return None

    def _corrected_s(
        self, seconds: float | None, candidate: Candidate | None, kernel: KernelFigures | None
    ) -> float | None:
        """Return a prediction again, now that the assembler has said how many workgroups run at once."""
        if seconds is None or candidate is None or self._proposer is None or kernel is None or not kernel.workgroups:
            return seconds
        with self._searching():
            return self._proposer.seconds_with(candidate, kernel.workgroups)

    def _check(self, candidates: Sequence[Candidate]) -> list[Checked]:
        """Build and judge candidates alone, and record those that fail."""
        jobs = [self._programs.job(candidate) for candidate in candidates]
        wanted = [
            tuned_task(self.task.id, self._tunable.configured, self._programs.configuration(candidate))
            for candidate in candidates
        ]
        checked = self._checker.check(self._tunable, jobs, wanted)
        for candidate, outcome in zip(candidates, checked, strict=True):
            self.counts[outcome.status] += 1
            if outcome.status is not Status.OK:
                self._session.record(
                    self.task.id, candidate.template, dict(candidate.values), outcome.status,
                    message=outcome.message, command=outcome.command,
                )  # fmt: skip
        return checked

    def _make_proposer(self, factory: SearcherFactory, seed: int) -> Proposer:
        # torch takes seconds to import.
        from felix_mlir.tuning.proposer import Proposer

        searcher = factory(search_problem(self.task.id, self._tunable, self._session.cost_model), seed)
        searcher.observe(self._known.failed)
        return Proposer(self.task.id, self._tunable, searcher, self._session.cost_model())

    @contextmanager
    def _searching(self) -> Generator[None]:
        begun = time.perf_counter()
        yield
        self.search_s += time.perf_counter() - begun


def _is_faster(seconds: float, default_s: float | None) -> bool:
    return default_s is None or seconds * _SMALLEST_GAIN < default_s
