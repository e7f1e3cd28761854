"""Tuning one task: its isolated default as the yardstick, rounds of candidates, and the final choice."""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from felix_mlir.compiler.parallel import merged
from felix_mlir.compiler.process import BuildOutcome
from felix_mlir.errors import WorkError
from felix_mlir.importers import random_inputs
from felix_mlir.measure import (
    MIN_PAIRS,
    BuildJob,
    Measurement,
    Program,
    Runner,
    Status,
    Timing,
    Verdict,
    compare,
    median,
    save_arrays,
)
from felix_mlir.records import Record
from felix_mlir.search import Candidate, Observation, Searcher, SearcherFactory, TaskProgress
from felix_mlir.tasks import Task, TunableTask
from felix_mlir.tuning.decision import Choice
from felix_mlir.tuning.programs import (
    CUTOFF,
    DEFAULT_EVERY,
    INPUT_SEED,
    INVOCATION_S,
    RUN_TIMEOUT_S,
    TIMING,
    TaskPrograms,
    repeats_of,
    search_problem,
    task_tolerance,
)
from felix_mlir.tuning.session import Session, failure

# The best of many noisy timings is lucky: the truly fastest is among the next ones.
_FINALISTS = 6
_FINAL_PAIRS = 15
_RECENT = 3
_LONGEST_FINAL_S = 10.0
_FINAL_S = 0.25


class TaskTuner:
    """Proposes, builds, checks and times candidates of one tunable task; every one ends as a record.

    `search_s` are the seconds the searcher has taken so far, the loading of its cost model among them.
    """

    def __init__(
        self, task: Task, model_s: float, session: Session, searcher: SearcherFactory, seed: int, folder: Path
    ) -> None:
        if task.tunable is None:
            raise ValueError(f"task {task.id} is not tunable: {task.reason}")
        self.task = task
        self.progress = TaskProgress((task.share or 0.0) * model_s)
        self._tunable: TunableTask = task.tunable
        self._session = session
        self._folder = folder
        self._templates = {template.name: template for template in self._tunable.templates}
        self.search_s = 0.0
        self._factory, self._seed = searcher, seed
        self._searcher: Searcher | None = None
        self._repeats = repeats_of(task.launch_s or INVOCATION_S)
        self._programs = TaskPrograms(task, session.target, self._repeats, folder)
        self._reference_s = 0.0
        self._best: dict[object, tuple[float, Candidate]] = {}
        self._unsteady: dict[object, Candidate] = {}
        self._history = [record for record in session.history(task.id) if self._is_candidate(record)]
        self.counts = Counter(record.status for record in self._history)

    @property
    def is_prepared(self) -> bool:
        return self._reference_s > 0

    @property
    def reference_s(self) -> float:
        """Seconds per launch of the isolated default, as this session timed it; 0 before `prepare`."""
        return self._reference_s

    @property
    def best_ratio(self) -> float:
        """Latency of the best candidate so far over the default's, at most 1."""
        fastest = min((latency for latency, _ in self._best.values()), default=math.inf)
        return min(1.0, fastest / self._reference_s) if self._reference_s else 1.0

    def prepare(self) -> None:
        """Build and time the isolated default, keep its outputs as the reference, and learn from earlier records.

        Raises WorkError when the default itself fails.
        """
        with self._searching():
            problem = search_problem(self.task.id, self._tunable, self._session.cost_model)
            self._searcher = self._factory(problem, self._seed)
        types = [(i.shape, i.dtype) for i in self._tunable.inputs]
        save_arrays(self._inputs, "arg", list(random_inputs(types, INPUT_SEED)))
        begun = time.perf_counter()
        job = self._programs.default
        outcome = self._session.builder.build([job])[0]
        if not outcome.ok:
            raise WorkError(f"building it alone: {outcome.failure}")
        measurement = self._session.runner.measure(
            self._program(job.output, check=False), TIMING, RUN_TIMEOUT_S, self._expected
        )
        if measurement.latency_s is None:
            raise WorkError(f"running it alone: {failure(measurement)}")
        self._reference_s = measurement.latency_s / self._repeats
        self.progress.candidate_s = time.perf_counter() - begun
        self._learn([self._observation(record) for record in self._history])

    def run_round(self, count: int) -> None:
        """Propose, build and time up to `count` candidates; fewer when the space is exhausted."""
        with self._searching():
            candidates = self._prepared_searcher.propose(count)
        begun = time.perf_counter()
        jobs = [self._programs.job(candidate) for candidate in candidates]
        self._measure(candidates, jobs, self._session.builder.build(jobs))
        self.progress.ratios.append(self.best_ratio)
        self.progress.candidate_s = (time.perf_counter() - begun) / max(1, len(candidates))

    def confirm(self, count: int) -> None:
        """Time the `count` fastest candidates once more, and those that so far were only timed unsteadily.

        The best of many noisy timings is fast by luck, too.
        """
        fastest = [candidate for _, candidate in sorted(self._best.values(), key=lambda pair: pair[0])[:count]]
        unsteady = [candidate for key, candidate in self._unsteady.items() if key not in self._best]
        candidates = fastest + unsteady
        jobs = [self._programs.job(candidate) for candidate in candidates]
        self._measure(candidates, jobs, self._session.builder.build(jobs))

    def choose(self) -> Choice:
        """Time the best candidates and the default in turn; keep the default unless one is faster beyond noise."""
        finalists = [candidate for _, candidate in sorted(self._best.values(), key=lambda pair: pair[0])]
        finalists = [c for c in finalists if self._programs.configuration(c) != self._tunable.default][:_FINALISTS]
        jobs = [self._programs.job(candidate) for candidate in finalists]
        outcomes = self._session.builder.build(jobs)
        pairs = [(c, j.output) for c, j, outcome in zip(finalists, jobs, outcomes, strict=True) if outcome.ok]
        while pairs:
            measurements = self._interleave([vmfb for _, vmfb in pairs])
            default, *rest = measurements
            if default.status is Status.OK:
                return self._fastest(default, [candidate for candidate, _ in pairs], rest)
            # A crash or hang ends all programs of a comparison: try with fewer, the best ones last to go.
            pairs = pairs[: len(pairs) // 2]
        reason = "no candidate was measured" if not self._best else "no candidate differs from the default"
        return self._keep(self._reference_s, "its finalists failed" if finalists else reason)

    def _keep(self, default_s: float, reason: str) -> Choice:
        return Choice(
            candidate=None, configuration=None, reason=reason, default_s=default_s, chosen_s=default_s, ratio=1.0,
            interval=(1.0, 1.0),
        )  # fmt: skip

    def _interleave(self, vmfbs: Sequence[Path]) -> tuple[Measurement, ...]:
        """Time the default and others in turn; a slow dispatch gets fewer rounds."""
        programs = [self._program(vmfb) for vmfb in (self._programs.default.output, *vmfbs)]
        invocation_s = self._reference_s * self._repeats
        rounds = max(MIN_PAIRS, min(_FINAL_PAIRS, int(_LONGEST_FINAL_S / (len(programs) * invocation_s))))
        timeout_s = RUN_TIMEOUT_S + 10 * rounds * len(programs) * invocation_s
        return self._session.runner.measure_interleaved(programs, Timing(_FINAL_S, rounds), timeout_s)

    def _fastest(self, default: Measurement, candidates: Sequence[Candidate], rest: Sequence[Measurement]) -> Choice:
        choices = [
            choice
            for candidate, measurement in zip(candidates, rest, strict=True)
            if measurement.status is Status.OK and (choice := self._choice(candidate, default, measurement)) is not None
        ]
        default_s = median(default.samples) / self._repeats
        keep = self._keep(default_s, "no candidate was faster beyond the noise")
        return max(choices, key=lambda choice: choice.ratio, default=keep)

    def _choice(self, candidate: Candidate, default: Measurement, measurement: Measurement) -> Choice | None:
        comparison = compare(default.samples, measurement.samples)
        if comparison.verdict is not Verdict.FASTER:
            return None
        default_s = median(default.samples) / self._repeats
        return Choice(
            candidate=candidate,
            configuration=self._programs.configuration(candidate),
            default_s=default_s,
            chosen_s=default_s / comparison.ratio,
            ratio=comparison.ratio,
            interval=(comparison.low, comparison.high),
        )

    def _measure(
        self, candidates: Sequence[Candidate], jobs: Sequence[BuildJob], outcomes: Sequence[BuildOutcome]
    ) -> None:
        """Time what was built, the default every few candidates, and record each one as soon as it is known."""
        built: list[tuple[Candidate, BuildJob]] = []
        ended: list[Observation] = []
        for candidate, job, outcome in zip(candidates, jobs, outcomes, strict=True):
            if outcome.ok:
                built.append((candidate, job))
            else:
                command = shlex.join(outcome.command)
                ended.append(self._add(candidate, Status(outcome.status), message=outcome.message, command=command))
        runners = self._session.runners
        parts = [built[number :: len(runners)] for number in range(len(runners))]
        timed = [self._timed(runner, part) for runner, part in zip(runners, parts, strict=True)]
        for candidate, measurement, default_s in merged(timed):
            if measurement.status is not Status.OK:
                ended.append(
                    self._add(candidate, measurement.status, message=measurement.message, command=measurement.command)
                )
                continue
            samples = tuple(sample / self._repeats for sample in measurement.samples)
            ended.append(self._add(candidate, Status.OK, samples, default_s))
            # The files of a failure are what reproduces it; these have served.
            self._programs.remove(candidate)
        self._learn(ended)

    def _timed(
        self, runner: Runner, built: Sequence[tuple[Candidate, BuildJob]]
    ) -> Iterator[tuple[Candidate, Measurement, float]]:
        """Time candidates on one device; yields with each what a launch of the default takes there now.

        That is the middle of its last few timings: what is to be divided out is drift, not a moment's disturbance.
        """
        recent: deque[float] = deque(maxlen=_RECENT)
        default_s = self._reference_s
        for index, (candidate, job) in enumerate(built):
            if index % DEFAULT_EVERY == 0 and (now_s := self._time_default(runner)) is not None:
                recent.append(now_s)
                default_s = median(recent)
            cutoff_s = CUTOFF * self.best_ratio * default_s * self._repeats
            timing = replace(TIMING, cutoff_s=cutoff_s)
            yield candidate, runner.measure(self._program(job.output), timing, RUN_TIMEOUT_S), default_s

    def _time_default(self, runner: Runner) -> float | None:
        """Return what a launch of the default takes now; None if this time it failed."""
        program = self._program(self._programs.default.output)
        latency = runner.measure(program, TIMING, RUN_TIMEOUT_S).latency_s
        return latency / self._repeats if latency else None

    def _add(
        self,
        candidate: Candidate,
        status: Status,
        samples: tuple[float, ...] = (),
        default_s: float = 0.0,
        message: str = "",
        command: str = "",
    ) -> Observation:
        """Record how a candidate ended; its latency is corrected for drift by the default timed just before."""
        latency_s = median(samples) * self._reference_s / default_s if samples else None
        record = self._session.record(
            self.task.id, candidate.template, dict(candidate.values), status,
            latency_s=latency_s, samples=samples, reference_s=self._reference_s, message=message, command=command,
        )  # fmt: skip
        self.counts[status] += 1
        return self._observation(record)

    def _is_candidate(self, record: Record) -> bool:
        """Whether a record is of a candidate as this version has them: another's templates may have had other knobs."""
        template = self._templates.get(record.template)
        return template is not None and set(record.knobs) == {knob.name for knob in template.knobs}

    def _observation(self, record: Record) -> Observation:
        """Return what a record says; latencies of other sessions are scaled by the default measured beside them."""
        candidate = Candidate(record.template, record.knobs)
        latency = record.latency_beside(self._reference_s)
        if latency is not None:
            self._best[candidate.key] = (latency, candidate)
        if record.status is Status.UNSTABLE:
            self._unsteady[candidate.key] = candidate
        return Observation(candidate, latency)

    def _learn(self, observations: Sequence[Observation]) -> None:
        with self._searching():
            self._prepared_searcher.observe(observations)

    @property
    def _prepared_searcher(self) -> Searcher:
        if self._searcher is None:
            raise ValueError(f"task {self.task.id} is not prepared")
        return self._searcher

    @contextmanager
    def _searching(self) -> Generator[None]:
        begun = time.perf_counter()
        yield
        self.search_s += time.perf_counter() - begun

    def _program(self, vmfb: Path, *, check: bool = True) -> Program:
        expected = self._expected if check else None
        return Program(vmfb, self._inputs, expected=expected, tolerance=task_tolerance(self._tunable))

    @property
    def _inputs(self) -> Path:
        return self._folder / "inputs.npz"

    @property
    def _expected(self) -> Path:
        return self._folder / "expected.npz"
