"""The programs of one task, its default and its candidates: as compiler jobs, and how they are timed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.compiler.process import tool_path
from felix_mlir.measure import BuildJob, Timing
from felix_mlir.schedule import Configuration, with_configuration
from felix_mlir.search import Candidate, SearchProblem, legal_spaces
from felix_mlir.target import Target
from felix_mlir.tasks import Task, TunableTask

if TYPE_CHECKING:
    from felix_mlir.cost import OnlineModel

# One invocation of a short dispatch is mostly the cost of the call: repeat it inside until it lasts this long.
INVOCATION_S = 0.5e-3
MAX_REPEATS = 64
TIMING = Timing(0.05, 5)
RUN_TIMEOUT_S = 60.0
# A candidate this much slower than the best so far is not worth more than one look.
CUTOFF = 3.0
# The machine drifts: the default is timed again before every so many candidates.
DEFAULT_EVERY = 4
# What the arguments are made of: every program of a task gets the same ones.
INPUT_SEED = 0


def repeats_of(launch_s: float) -> int:
    """Return how often an invocation is to launch a dispatch that takes `launch_s` seconds."""
    return min(MAX_REPEATS, max(1, math.ceil(INVOCATION_S / launch_s)))


def search_seed(seed: int, task_id: str) -> int:
    """Return the seed of the search of one task, in a run with this seed."""
    return seed + int(task_id[:8], 16)


def search_problem(task_id: str, tunable: TunableTask, cost_model: Callable[[], OnlineModel]) -> SearchProblem:
    """Return what a searcher searches: all templates of a task, from the compiler's own choice on."""
    start = [
        Candidate(template.name, values)
        for template in tunable.templates
        if (values := template.values_of(tunable.default)) and not template.violations(values)
    ]
    return SearchProblem(
        task_id, legal_spaces(tunable.templates), tunable.configured, tunable.vector_bytes, cost_model,
        tuple(start),
    )  # fmt: skip


def task_tolerance(task: TunableTask) -> float:
    """Largest relative error between two schedules: rounding errors of a reassociated sum grow like a random walk."""
    root = task.dispatch.root
    length = math.prod(root.extents[loop] for loop in root.reduction_loops)
    eps = [_EPSILONS[o.element_type] for o in root.operands if o.element_type in _EPSILONS]
    return min(0.1, 8 * max(eps, default=0.0) * math.sqrt(max(1, length)))


_EPSILONS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


class TaskPrograms:
    """Writes the isolated programs of a task, whose dispatch runs `repeats` times an invocation, to `folder`."""

    def __init__(self, task: Task, target: Target, repeats: int, folder: Path) -> None:
        if task.tunable is None:
            raise ValueError(f"task {task.id} is not tunable: {task.reason}")
        self._tunable = task.tunable
        self._target = target
        self._folder = folder
        self._templates = {template.name: template for template in task.tunable.templates}
        self._text = task.tunable.configured.read_text()
        self.repeats = repeats
        self.default = BuildJob(self._command(task.tunable.configured), folder / "default.vmfb")

    def configuration(self, candidate: Candidate) -> Configuration:
        return self._templates[candidate.template].configuration(candidate.values)

    def job(self, candidate: Candidate) -> BuildJob:
        """Write the isolated program with a candidate's configuration, for the compiler to go on from."""
        path = self._file(candidate)
        path.write_text(with_configuration(self._text, self.configuration(candidate)))
        return BuildJob(self._command(path), path.with_suffix(".vmfb"))

    def remove(self, candidate: Candidate) -> None:
        """Remove what was written and built of a candidate."""
        path = self._file(candidate)
        path.unlink(missing_ok=True)
        path.with_suffix(".vmfb").unlink(missing_ok=True)

    def _file(self, candidate: Candidate) -> Path:
        name = hashlib.sha256(repr(candidate.key).encode()).hexdigest()[:12]
        return self._folder / f"candidate-{name}.mlir"

    def _command(self, program: Path) -> tuple[str, ...]:
        return (
            tool_path("iree-compile"), str(program), "--compile-from=executable-configurations",
            *self._target.compile_flags, f"--iree-hal-benchmark-dispatch-repeat-count={self.repeats}",
        )  # fmt: skip
