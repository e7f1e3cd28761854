"""The model as a whole: its default build, its alternatives, and interleaved comparisons between builds."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from felix_mlir.apply import (
    ALTERNATIVES,
    DEFAULT,
    Alternative,
    alternative_named,
    build_model,
    compile_to_flow,
)
from felix_mlir.compiler.process import BuildOutcome, BuildStatus
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import PARAMETER_SCOPE, Model, random_inputs
from felix_mlir.measure import (
    Comparison,
    Measurement,
    Program,
    Status,
    Timing,
    compare,
    load_arrays,
    median,
    save_arrays,
)
from felix_mlir.measure.signature import read_signature
from felix_mlir.records import Record
from felix_mlir.tasks import Task, extract_tasks, profile_dispatches
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.session import Session, failure
from felix_mlir.tuning.workspace import Workspace

# The first compile of a model has nothing to be compared with; it may be large.
_FIRST_COMPILE_TIMEOUT_S = 900.0
_SLOWEST_BUILD_FACTOR = 6.0
_SHORTEST_TIMEOUT_S = 60.0
_RUN_TIMEOUT_S = 300.0
_PAIRS = 9
_SECONDS_PER_PROGRAM = 0.5
_PROFILE_S = 0.5

# Share of the time budget the alternatives may take.
ALTERNATIVES_SHARE = 0.35


@dataclass(frozen=True)
class Build:
    """A compiled variant of the model: `flow` is what its tasks are read from."""

    alternative: Alternative
    flow: Path
    vmfb: Path


@dataclass(frozen=True)
class AlternativeResult:
    """How an alternative did: `ratio` is the default's latency over its own, None if it was not timed."""

    name: str
    status: str
    ratio: float | None
    message: str


class ModelStage:
    """Builds and times whole variants of one model on its real inputs."""

    def __init__(self, model: Model, workspace: Workspace, session: Session) -> None:
        self._model = model
        self._workspace = workspace
        self._session = session
        self.timeout_s = _FIRST_COMPILE_TIMEOUT_S
        self._slowest_build_s = 0.0
        self.function = "main"
        self.tolerance = 0.0
        self.default_latency_s = 0.0

    def build_default(self) -> Build:
        """Compile the model as iree-compile does by itself, run it once and keep its outputs as the reference.

        Raises RequestError when the compiler rejects the model, WorkError when the compiled model fails.
        """
        build, outcome = self._build(DEFAULT)
        if build is None:
            if outcome.status is BuildStatus.COMPILE_ERROR:
                raise RequestError(f"iree-compile rejects {self._model.mlir.name}: {outcome.message}")
            raise WorkError(f"compiling the model: {outcome.message} (reproduce: {' '.join(outcome.command)})")
        self.timeout_s = max(_SHORTEST_TIMEOUT_S, _SLOWEST_BUILD_FACTOR * self._slowest_build_s)
        shutil.copyfile(build.vmfb, self._workspace.default)
        signature = read_signature(build.vmfb)
        self.function = signature.function
        inputs = self._model.inputs or random_inputs(signature.inputs, seed=0)
        save_arrays(self._workspace.inputs, "arg", list(inputs))
        measurement = self._session.runner.measure(
            self.program(build.vmfb, check=False), Timing(0.3, 3), _RUN_TIMEOUT_S, self._workspace.expected
        )
        if measurement.latency_s is None:
            raise WorkError(f"running the model as the compiler builds it by default: {failure(measurement)}")
        self.default_latency_s = measurement.latency_s
        self.tolerance = model_tolerance([a.dtype for a in load_arrays(self._workspace.expected, "out")])
        return build

    @property
    def build_seconds(self) -> float:
        """How long the slowest build so far took."""
        return self._slowest_build_s

    def input_arguments(self) -> list[str]:
        """Return the model's inputs, and its weights where they are outside, as IREE's tools take them."""
        arguments: list[str] = []
        for index, array in enumerate(load_arrays(self._workspace.inputs, "arg")):
            path = self._workspace.work / f"input{index}.npy"
            np.save(path, array)
            arguments.append(f"--input=@{path}")
        if self._model.parameters is not None and not self._model.embed_parameters:
            arguments.append(f"--parameters={PARAMETER_SCOPE}={self._model.parameters}")
        return arguments

    def program(self, vmfb: Path, *, check: bool = True) -> Program:
        side_file = None if self._model.embed_parameters else self._model.parameters
        return Program(
            vmfb=vmfb,
            inputs=self._workspace.inputs,
            function=self.function,
            parameters=side_file,
            expected=self._workspace.expected if check else None,
            tolerance=self.tolerance,
        )

    def try_alternatives(self, default: Build, budget: Budget) -> list[AlternativeResult]:
        """Build and time the alternatives until they are through or have had their share of the budget.

        Returns one result for each, the default first. What an earlier run measured is not measured again.
        """
        known = {record.template: record for record in self._session.history(self._task(default))}
        flows = {_content_hash(default.flow): DEFAULT.name}
        untried = [a for a in ALTERNATIVES if a is not DEFAULT and a.name not in known]
        cores = self._session.target.cores
        while untried and not self._share_used_up(budget):
            batch, untried = untried[:cores], untried[cores:]
            self._session.progress.stage(f"compiling the whole model another way: {', '.join(a.name for a in batch)}")
            with ThreadPoolExecutor(cores) as pool:
                builds = list(pool.map(self._build, batch))
            for alternative, (build, outcome) in zip(batch, builds, strict=True):
                known[alternative.name] = self._time(alternative, build, outcome, default, flows)
        results = [AlternativeResult(DEFAULT.name, Status.OK.value, 1.0, "")]
        for alternative in ALTERNATIVES:
            if alternative.name in known:
                results.append(_result(known[alternative.name]))
            elif alternative is not DEFAULT:
                message = "its share of the budget was used up"
                results.append(AlternativeResult(alternative.name, "not tried", None, message))
        return results

    def build_of(self, result: AlternativeResult) -> Build:
        """Return the build of an alternative that was timed, compiling it again if its files are gone."""
        alternative = alternative_named(result.name)
        build = Build(alternative, self._flow(alternative), self._vmfb(alternative))
        if not build.vmfb.exists():
            self._build(alternative)
        return build

    def _share_used_up(self, budget: Budget) -> bool:
        if budget.seconds is None:
            return False
        return budget.elapsed_s + self._slowest_build_s > ALTERNATIVES_SHARE * budget.seconds

    def _time(
        self,
        alternative: Alternative,
        build: Build | None,
        outcome: BuildOutcome,
        default: Build,
        flows: dict[str, str],
    ) -> Record:
        """Check and time one alternative; `flows` names the alternative each forming of dispatches belongs to."""
        record = partial(self._session.record, self._task(default), alternative.name, {})
        if build is None:
            return record(Status(outcome.status), message=outcome.message, command=shlex.join(outcome.command))
        twin = flows.setdefault(_content_hash(build.flow), alternative.name)
        if twin != alternative.name and not _changes_code_generation(alternative):
            same = self.default_latency_s
            return record(Status.OK, latency_s=same, reference_s=same, message=f"the same program as {twin}")
        first, second = self.interleave([default.vmfb, build.vmfb])
        comparison = verdict_of(first, second)
        if comparison is None:
            worse = second if second.status is not Status.OK else first
            return record(worse.status, message=worse.message, command=worse.command)
        return record(
            Status.OK,
            latency_s=median(first.samples) / comparison.ratio,
            samples=second.samples,
            reference_s=median(first.samples),
        )

    def _task(self, default: Build) -> str:
        return f"model-{_content_hash(default.flow)}"

    def tasks(self, build: Build) -> list[Task]:
        """Return the tasks of a build of the model, each with its share of the run time."""
        tasks = extract_tasks(build.flow, self._session.target, self._workspace.work / "tasks")
        launches = self.profile(build.vmfb)
        costs = [sum(launches.get(e, 0.0) for e in task.exports) / len(task.exports) * task.count for task in tasks]
        total = sum(costs) or 1.0
        return [replace(task, share=cost / total) for task, cost in zip(tasks, costs, strict=True)]

    def profile(self, vmfb: Path) -> dict[str, float]:
        """Return nanoseconds per launch of each entry point, inside the running model."""
        arguments = [f"--function={self.function}", *self.input_arguments()]
        return profile_dispatches(vmfb, arguments, self._session.target.device, _PROFILE_S)

    def interleave(self, vmfbs: Sequence[Path], pairs: int = _PAIRS) -> tuple[Measurement, ...]:
        """Time builds of the model in turn, checking each one's outputs against the default's."""
        programs = [self.program(vmfb) for vmfb in vmfbs]
        return self._session.runner.measure_interleaved(programs, Timing(_SECONDS_PER_PROGRAM, pairs), _RUN_TIMEOUT_S)

    def _build(self, alternative: Alternative) -> tuple[Build | None, BuildOutcome]:
        build = Build(alternative, self._flow(alternative), self._vmfb(alternative))
        target, timeout_s = self._session.target, self.timeout_s
        outcome = compile_to_flow(self._model, alternative, target, build.flow, timeout_s)
        if not outcome.ok:
            return None, outcome
        seconds = outcome.seconds
        outcome = build_model(build.flow, alternative, target, {}, build.vmfb, timeout_s).outcome
        self._slowest_build_s = max(self._slowest_build_s, seconds + outcome.seconds)
        return (build if outcome.ok else None), outcome

    def _flow(self, alternative: Alternative) -> Path:
        return self._workspace.work / "variants" / alternative.name / "flow.mlirbc"

    def _vmfb(self, alternative: Alternative) -> Path:
        return self._flow(alternative).with_name("model.vmfb")


def model_tolerance(types: Sequence[np.dtype]) -> float:
    """Largest relative error accepted between two builds of a model, by the coarsest floating-point output type.

    A model chains many reductions, each reassociated: a thousand roundings of the type are the allowance.
    """
    floats = [np.finfo(type_).eps for type_ in types if np.issubdtype(type_, np.floating)]
    return min(0.05, 1000 * float(max(floats, default=0.0)))


def verdict_of(first: Measurement, second: Measurement) -> Comparison | None:
    """Compare two interleaved measurements; None when either failed."""
    if first.status is not Status.OK or second.status is not Status.OK:
        return None
    return compare(first.samples, second.samples)


def _content_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _changes_code_generation(alternative: Alternative) -> bool:
    """Whether an alternative may differ though its dispatches are the same: it has flags beyond preprocessing."""
    return any(not flag.startswith("--iree-preprocessing-") for flag in alternative.flags)


def _result(record: Record) -> AlternativeResult:
    ratio = record.reference_s / record.latency_s if record.reference_s and record.latency_s else None
    return AlternativeResult(record.template, record.status.value, ratio, record.message)
