"""The model as a whole: its default build, its alternatives, and interleaved comparisons between builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np

from felix_mlir.apply import (
    DEFAULT,
    Alternative,
    build_model,
    compile_to_flow,
    compile_to_preprocessing,
    with_tasks,
)
from felix_mlir.compiler.process import BuildOutcome, BuildStatus
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import PARAMETER_SCOPE, Model, random_inputs
from felix_mlir.measure import (
    MIN_PAIRS,
    Measurement,
    Program,
    Timing,
    load_arrays,
    save_arrays,
)
from felix_mlir.measure.signature import entry_point
from felix_mlir.passes.tuned import Tuned
from felix_mlir.sketches import RootOp, launches_by_root
from felix_mlir.tasks import Profile, Task, extract_tasks, profile_dispatches, read_input_types
from felix_mlir.tuning.alone import time_alone
from felix_mlir.tuning.session import Session, failure
from felix_mlir.tuning.workspace import Workspace, copy_whole

# The first compile of a model has nothing to be compared with; it may be large.
FIRST_COMPILE_TIMEOUT_S = 900.0
_SLOWEST_BUILD_FACTOR = 6.0
_SHORTEST_TIMEOUT_S = 60.0
_RUN_TIMEOUT_S = 300.0
_PROFILE_S = 0.5
_SHORT_NAMES = {"bfloat16": "bf16"}
# Seconds a run may take to be repeated where one sample is enough.
_SLOW_MODEL_S = 2.0
# Above these seconds a run of the default is compared in fewer pairs than noise takes: only large gains count then.
_SLOW_DEFAULT_S = 4.0
_SLOW_MODEL_PAIRS = 2
# An interleaved comparison of a slow model is cut down to about this, if it can be.
_LONGEST_S = 20.0


@dataclass(frozen=True)
class Build:
    """A compiled variant of the model: `flow` is what its tasks are read from, `tuned` what it is compiled with."""

    alternative: Alternative
    flow: Path
    vmfb: Path
    tuned: Tuned


class ModelStage:
    """Builds and times whole variants of one model on its real inputs."""

    def __init__(self, model: Model, workspace: Workspace, session: Session) -> None:
        self._model = model
        self._workspace = workspace
        self._session = session
        self.timeout_s = FIRST_COMPILE_TIMEOUT_S
        self.build_seconds = 0.0
        self.function = "main"
        self.tolerance = 0.0
        self.default_latency_s = 0.0
        self._built: dict[str, tuple[Build, BuildOutcome]] = {}

    def compile_default(self) -> Build:
        """Compile the model as iree-compile does by itself.

        Raises RequestError when the compiler rejects the model, WorkError when it fails otherwise.
        """
        build, outcome = self.build(DEFAULT)
        if build is None:
            if outcome.status is BuildStatus.COMPILE_ERROR:
                raise RequestError(f"iree-compile rejects {self._model.mlir.name}: {outcome.message}")
            raise WorkError(f"compiling the model: {outcome.failure}")
        self.timeout_s = max(_SHORTEST_TIMEOUT_S, _SLOWEST_BUILD_FACTOR * self.build_seconds)
        copy_whole(build.vmfb, self._workspace.default)
        return build

    def build_default(self) -> Build:
        """Compile the model as iree-compile does by itself, run it once and keep its outputs as the reference.

        Raises RequestError when the compiler rejects the model, WorkError when the compiled model fails.
        """
        build = self.compile_default()
        self.function = entry_point(build.vmfb)
        inputs = self._model.inputs
        if inputs is None:
            types = read_input_types(build.flow, self.function)
            inputs = random_inputs([(t.shape, t.dtype) for t in types], seed=0)
        save_arrays(self._workspace.inputs, "arg", list(inputs))
        measurement = self.run(build.vmfb, save_outputs=self._workspace.expected)
        if measurement.latency_s is None:
            raise WorkError(f"running the model as the compiler builds it by default: {failure(measurement)}")
        self.default_latency_s = measurement.latency_s
        self.tolerance = model_tolerance([a.dtype for a in load_arrays(self._workspace.expected, "out")])
        return build

    def input_arguments(self) -> list[str]:
        """Return the model's inputs, and its weights where they are outside, as IREE's tools take them."""
        arguments: list[str] = []
        for index, array in enumerate(load_arrays(self._workspace.inputs, "arg")):
            shape = "x".join(map(str, array.shape))
            if array.dtype.isbuiltin == 1:
                path = self._workspace.work / f"input{index}.npy"
                np.save(path, array)
                arguments.append(f"--input=@{path}")
            else:  # IREE's tools read no .npy of the types ml_dtypes adds; for a profile any values will do.
                arguments.append(f"--input={shape}x{_SHORT_NAMES[array.dtype.name]}=1")
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

    def build(self, alternative: Alternative) -> tuple[Build | None, BuildOutcome]:
        """Compile the model one way, once; returns no build when that failed, with the outcome that says why."""
        if alternative.key in self._built:
            return self._built[alternative.key]
        build = self.build_of(alternative)
        timeout_s = self.timeout_s
        outcome = compile_to_flow(self._model, build.tuned, build.flow, timeout_s)
        if not outcome.ok:
            return None, outcome
        seconds = outcome.seconds
        outcome = build_model(build.flow, build.tuned, build.vmfb, timeout_s).outcome
        self.build_seconds = max(self.build_seconds, seconds + outcome.seconds)
        if not outcome.ok:
            return None, outcome
        self._built[alternative.key] = build, outcome
        return build, outcome

    def preprocessed(self) -> Path:
        """Compile the model as far as its ops can be rewritten; raises WorkError where that fails."""
        path = self._workspace.work / "preprocessed.mlirbc"
        outcome = compile_to_preprocessing(self._model, self._session.target, path, self.timeout_s)
        if not outcome.ok:
            raise WorkError(f"reading the model's ops: {outcome.failure}")
        return path

    def build_of(self, alternative: Alternative) -> Build:
        """Return where the files of a build are, whether or not they are there."""
        folder = self._workspace.work / "variants" / alternative.key
        tuned = with_tasks(self._workspace.state.source, self._session.target, alternative)
        return Build(alternative, folder / "flow.mlirbc", folder / "model.vmfb", tuned)

    def extract(self, build: Build) -> list[Task]:
        """Return the tasks of a build of the model, not profiled."""
        return extract_tasks(build.flow, self._session.target, self._workspace.work / "tasks")

    def tasks(self, build: Build, profile: Profile | None = None) -> list[Task]:
        """Return the tasks of a build of the model, each with its share of the run time.

        The shares are those of `profile`, or of one taken now; on a target without a profiler tasks are timed alone.
        """
        tasks = self.extract(build)
        if not self._session.target.has_profiler:
            return time_alone(tasks, self._session, self._workspace.work / "tasks")
        profile = profile or self.profile(build.vmfb)
        return [
            replace(task, share=profile.share(task.exports), launch_s=profile.launch_s(task.exports)) for task in tasks
        ]

    def launch_seconds(
        self, build: Build, latency_s: float, roots: Sequence[RootOp], profile: Profile
    ) -> dict[str, dict[str, float]]:
        """Divide `latency_s`, what a run of a build takes, over root ops and the entry points that compute them."""
        return {
            op: {export: latency_s * part * profile.share([export]) for export, part in launches.items()}
            for op, launches in launches_by_root(build.flow, roots).items()
        }

    def profile(self, vmfb: Path) -> Profile:
        """Return what each entry point takes inside the running model."""
        arguments = [f"--function={self.function}", *self.input_arguments()]
        return profile_dispatches(vmfb, arguments, self._session.target.device, _PROFILE_S)

    def run(self, vmfb: Path, save_outputs: Path | None = None) -> Measurement:
        """Run one build, check its outputs (unless they are to be the reference) and time it.

        One that takes longer than _SLOW_MODEL_S is timed only once.
        """
        return self._session.runner.measure(
            self.program(vmfb, check=save_outputs is None), Timing(0.3, 3, cutoff_s=_SLOW_MODEL_S), _RUN_TIMEOUT_S,
            save_outputs,
        )  # fmt: skip

    def interleave(
        self, vmfbs: Sequence[Path], pairs: int, seconds: float, slowest_s: float | None = None
    ) -> tuple[Measurement, ...]:
        """Time builds of the model in turn, `seconds` each in up to `pairs` rounds, checking their outputs.

        Slow ones get fewer rounds; a run of the slowest takes `slowest_s`, or what the default takes.
        """
        programs = [self.program(vmfb) for vmfb in vmfbs]
        slowest_s = slowest_s or self.default_latency_s
        rounds = _rounds(len(programs), pairs, slowest_s)
        timeout_s = _RUN_TIMEOUT_S + 10 * rounds * len(programs) * slowest_s
        return self._session.runner.measure_interleaved(programs, Timing(seconds, rounds), timeout_s)

    def interleave_seconds(self, latencies_s: Sequence[float], pairs: int, seconds: float) -> float:
        """Return about how long `interleave` takes with builds of these latencies."""
        rounds = _rounds(len(latencies_s), pairs, max(latencies_s))
        # Checking, warming up and calibrating take some runs more; a very slow one's first run is a sample.
        more = 0 if rounds < MIN_PAIRS else 3
        return sum(max(1.5 * seconds, (rounds + more) * latency_s) for latency_s in latencies_s)

    @property
    def is_slow(self) -> bool:
        """Whether a run of the default takes so long that only large gains can be told from noise in a few runs."""
        return self.default_latency_s > _SLOW_DEFAULT_S


def _rounds(programs: int, pairs: int, slowest_s: float) -> int:
    """Return how often each of so many builds is timed in turn if a run of the slowest takes `slowest_s`."""
    if slowest_s > _SLOW_DEFAULT_S:
        return _SLOW_MODEL_PAIRS
    return max(MIN_PAIRS, min(pairs, int(_LONGEST_S / (programs * slowest_s))))


def model_tolerance(types: Sequence[np.dtype]) -> float:
    """Largest relative error accepted between two builds of a model, by the coarsest floating-point output type.

    A model chains many reductions, each reassociated: eight hundred roundings of the type are the allowance, about
    1e-4 for f32.
    """
    inexact = [float(ml_dtypes.finfo(type_).eps) for type_ in types if type_.kind not in "iub"]
    return min(0.05, 800 * max(inexact, default=0.0))
