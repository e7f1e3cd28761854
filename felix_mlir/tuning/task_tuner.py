"""Tuning one task: its isolated default as the yardstick, rounds of candidates, and the final choice."""

from __future__ import annotations

import hashlib
import math
import shlex
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.compiler.process import BuildOutcome, tool_path
from felix_mlir.errors import WorkError
from felix_mlir.importers import random_inputs
from felix_mlir.measure import (
    MIN_PAIRS,
    BuildJob,
    Measurement,
    Program,
    Status,
    Timing,
    Verdict,
    compare,
    median,
    save_arrays,
)
from felix_mlir.records import Record
from felix_mlir.schedule import Configuration, with_configuration
from felix_mlir.search import Candidate, Observation, SearcherFactory, SearchProblem, TaskProgress, legal_spaces
from felix_mlir.tasks import Task, TunableTask
from felix_mlir.tuning.session import Session, failure

# One invocation of a short dispatch is mostly the cost of the call: repeat it inside until it lasts this long.
_INVOCATION_S = 0.5e-3
_MAX_REPEATS = 64
_TIMING = (0.05, 5)
_RUN_TIMEOUT_S = 60.0
# A candidate this much slower than the best so far is not worth more than one look.
_CUTOFF = 3.0
# The machine drifts: the default is timed again before every so many candidates.
_DEFAULT_EVERY = 4
_FINALISTS = 4
_FINAL_PAIRS = 15
_LONGEST_FINAL_S = 10.0
_FINAL_S = 0.25


@dataclass(frozen=True)
class Choice:
    """The schedule a task ends with: `candidate` None keeps the compiler's default.

    Latencies are seconds per launch of the isolated dispatch, default and chosen measured in turn; `ratio` is
    default over chosen with its 95 % interval. `reason` says why the default is kept.
    """

    candidate: Candidate | None
    configuration: Configuration | None
    default_s: float
    chosen_s: float
    ratio: float
    interval: tuple[float, float]
    reason: str = ""


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
        start = [
            Candidate(template.name, values)
            for template in self._tunable.templates
            if (values := template.values_of(self._tunable.default)) and not template.violations(values)
        ]
        self.search_s = 0.0
        with self._searching():
            problem = SearchProblem(
                task.id, legal_spaces(self._tunable.templates), self._tunable.configured,
                self._tunable.limits.native_vector_bytes, session.cost_model, tuple(start),
            )  # fmt: skip
            self._searcher = searcher(problem, seed)
        launch_s = task.launch_s or _INVOCATION_S
        self._repeats = min(_MAX_REPEATS, max(1, math.ceil(_INVOCATION_S / launch_s)))
        self._text = self._tunable.configured.read_text()
        self._reference_s = 0.0
        self._default_now_s = 0.0
        self._best: dict[object, tuple[float, Candidate]] = {}
        self.counts: dict[Status, int] = {}

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
        """Build and time the isolated default, keep its outputs as the reference, and take in earlier records.

        Raises WorkError when the default itself fails.
        """
        save_arrays(self._inputs, "arg", list(random_inputs([(i.shape, i.dtype) for i in self._tunable.inputs], 0)))
        job = BuildJob(self._command(self._tunable.configured), self._folder / "default.vmfb")
        outcome = self._session.builder.build([job])[0]
        if not outcome.ok:
            raise WorkError(f"building it alone: {outcome.message} (reproduce: {shlex.join(outcome.command)})")
        measurement = self._session.runner.measure(
            self._program(job.output, check=False), Timing(*_TIMING), _RUN_TIMEOUT_S, self._expected
        )
        if measurement.latency_s is None:
            raise WorkError(f"running it alone: {failure(measurement)}")
        self._reference_s = self._default_now_s = measurement.latency_s / self._repeats
        self._learn(self._take_in(self._session.history(self.task.id)))

    def run_round(self, count: int) -> None:
        """Propose, build and time up to `count` candidates; fewer when the space is exhausted."""
        with self._searching():
            candidates = self._searcher.propose(count)
        jobs = [self._job(candidate) for candidate in candidates]
        self._measure(candidates, jobs, self._session.builder.build(jobs))
        self.progress.ratios.append(self.best_ratio)

    def confirm(self, count: int) -> None:
        """Time the `count` fastest candidates once more: the best of many noisy timings is fast by luck, too."""
        fastest = [candidate for _, candidate in sorted(self._best.values(), key=lambda pair: pair[0])[:count]]
        jobs = [self._job(candidate) for candidate in fastest]
        self._measure(fastest, jobs, self._session.builder.build(jobs))

    def choose(self) -> Choice:
        """Time the best candidates and the default in turn; keep the default unless one is faster beyond noise."""
        finalists = [candidate for _, candidate in sorted(self._best.values(), key=lambda pair: pair[0])]
        finalists = [c for c in finalists if self._configuration(c) != self._tunable.default][:_FINALISTS]
        jobs = [self._job(candidate) for candidate in finalists]
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
        return Choice(None, None, default_s, default_s, 1.0, (1.0, 1.0), reason)

    def _interleave(self, vmfbs: Sequence[Path]) -> tuple[Measurement, ...]:
        """Time the default and others in turn; a slow dispatch gets fewer rounds."""
        programs = [self._program(vmfb) for vmfb in (self._folder / "default.vmfb", *vmfbs)]
        invocation_s = self._reference_s * self._repeats
        rounds = max(MIN_PAIRS, min(_FINAL_PAIRS, int(_LONGEST_FINAL_S / (len(programs) * invocation_s))))
        timeout_s = _RUN_TIMEOUT_S + 10 * rounds * len(programs) * invocation_s
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
            candidate,
            self._configuration(candidate),
            default_s,
            default_s / comparison.ratio,
            comparison.ratio,
            (comparison.low, comparison.high),
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
                ended += self._add(candidate, Status(outcome.status), message=outcome.message, command=command)
        for index, (candidate, job) in enumerate(built):
            if index % _DEFAULT_EVERY == 0:
                self._default_now_s = self._time_default()
            cutoff_s = _CUTOFF * self.best_ratio * self._default_now_s * self._repeats
            program = self._program(job.output)
            measurement = self._session.runner.measure(program, Timing(*_TIMING, cutoff_s=cutoff_s), _RUN_TIMEOUT_S)
            if measurement.status is not Status.OK:
                ended += self._add(
                    candidate, measurement.status, message=measurement.message, command=measurement.command
                )
                continue
            samples = tuple(sample / self._repeats for sample in measurement.samples)
            ended += self._add(candidate, Status.OK, samples)
            # The files of a failure are what reproduces it; these have served.
            job.output.unlink(missing_ok=True)
            self._program_file(candidate).unlink(missing_ok=True)
        self._learn(ended)

    def _time_default(self) -> float:
        """Return what a launch of the default takes now; what it last took if this time it failed."""
        program = self._program(self._folder / "default.vmfb")
        latency = self._session.runner.measure(program, Timing(*_TIMING), _RUN_TIMEOUT_S).latency_s
        return latency / self._repeats if latency else self._default_now_s

    def _add(
        self,
        candidate: Candidate,
        status: Status,
        samples: tuple[float, ...] = (),
        message: str = "",
        command: str = "",
    ) -> list[Observation]:
        """Record how a candidate ended; its latency is corrected for drift by the default timed just before."""
        latency_s = median(samples) * self._reference_s / self._default_now_s if samples else None
        record = self._session.record(
            self.task.id, candidate.template, dict(candidate.values), status,
            latency_s=latency_s, samples=samples, reference_s=self._reference_s, message=message, command=command,
        )  # fmt: skip
        return self._take_in([record])

    def _take_in(self, records: Sequence[Record]) -> list[Observation]:
        """Count records; latencies of other sessions are scaled by the default measured beside them."""
        observations: list[Observation] = []
        for record in records:
            template = self._templates.get(record.template)
            # Another version of the templates may have had other knobs.
            if template is None or set(record.knobs) != {knob.name for knob in template.knobs}:
                continue
            candidate = Candidate(record.template, record.knobs)
            latency = record.latency_beside(self._reference_s)
            observations.append(Observation(candidate, latency))
            self.counts[record.status] = self.counts.get(record.status, 0) + 1
            if latency is not None:
                self._best[candidate.key] = (latency, candidate)
        return observations

    def _learn(self, observations: Sequence[Observation]) -> None:
        with self._searching():
            self._searcher.observe(observations)

    @contextmanager
    def _searching(self) -> Generator[None]:
        begun = time.perf_counter()
        yield
        self.search_s += time.perf_counter() - begun

    def _configuration(self, candidate: Candidate) -> Configuration:
        return self._templates[candidate.template].configuration(candidate.values)

    def _job(self, candidate: Candidate) -> BuildJob:
        """Write the isolated program with a candidate's configuration, for the compiler to go on from."""
        path = self._program_file(candidate)
        path.write_text(with_configuration(self._text, self._configuration(candidate)))
        return BuildJob(self._command(path), path.with_suffix(".vmfb"))

    def _program_file(self, candidate: Candidate) -> Path:
        name = hashlib.sha256(repr(candidate.key).encode()).hexdigest()[:12]
        return self._folder / f"candidate-{name}.mlir"

    def _command(self, program: Path) -> tuple[str, ...]:
        return (
            tool_path("iree-compile"), str(program), "--compile-from=executable-configurations",
            *self._session.target.compile_flags, f"--iree-hal-benchmark-dispatch-repeat-count={self._repeats}",
        )  # fmt: skip

    def _program(self, vmfb: Path, *, check: bool = True) -> Program:
        expected = self._expected if check else None
        return Program(vmfb, self._inputs, expected=expected, tolerance=task_tolerance(self._tunable))

    @property
    def _inputs(self) -> Path:
        return self._folder / "inputs.npz"

    @property
    def _expected(self) -> Path:
        return self._folder / "expected.npz"


def task_tolerance(task: TunableTask) -> float:
    """Largest relative error between two schedules: rounding errors of a reassociated sum grow like a random walk."""
    root = task.dispatch.root
    length = math.prod(root.extents[loop] for loop in root.reduction_loops)
    eps = [_EPSILONS[o.element_type] for o in root.operands if o.element_type in _EPSILONS]
    return min(0.1, 8 * max(eps, default=0.0) * math.sqrt(max(1, length)))


_EPSILONS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
