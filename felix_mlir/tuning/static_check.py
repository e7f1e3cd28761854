"""Judging compiled schedules without running them: they compile, fit the device, and are what was configured."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.errors import WorkError
from felix_mlir.gpu import KernelFigures, find_ptxas, kernel_figures, landing_problem, read_kernels
from felix_mlir.measure import Builder, BuildJob, Status
from felix_mlir.passes.tuned import TunedTask
from felix_mlir.schedule import GpuLimits
from felix_mlir.target import Target
from felix_mlir.tasks import Task, TunableTask


@dataclass(frozen=True)
class Checked:
    """How a schedule did alone: OK, how its build failed, or INVALID with what is against it.

    `kernel` is None where a target has none; `command` reproduces the build.
    """

    status: Status
    message: str
    command: str
    kernel: KernelFigures | None = None


class StaticChecker:
    """Builds programs and looks at the code. On a target that is no GPU all it can say is whether they compile.

    `notes` says what cannot be looked at here.
    """

    def __init__(self, target: Target, builder: Builder) -> None:
        self._builder = builder
        self._arch = target.name.removeprefix("cuda:") if target.device == "cuda" else None
        self.notes: list[str] = []
        if self._arch is None:
            return
        # Importing it loads torch, which takes seconds.
        from felix_mlir.cost.gpu_machine import read_gpu_machine

        self._machine = read_gpu_machine(self._arch).limits
        self._ptxas = find_ptxas()
        if self._ptxas is None:
            self.notes.append(
                "registers and spills are unknown, ptxas is not installed: pip install 'felix-mlir[cuda]', or CUDA"
            )

    def check(
        self, tunable: TunableTask, jobs: Sequence[BuildJob], wanted: Sequence[TunedTask | None]
    ) -> list[Checked]:
        """Build isolated programs of a task and judge each; `wanted` is what was configured, None for the default."""
        outcomes = self._builder.build(jobs)
        checked: list[Checked] = []
        for job, outcome, configured in zip(jobs, outcomes, wanted, strict=True):
            command = shlex.join(outcome.command)
            if outcome.ok:
                checked.append(self._judge(tunable, job.output, command, configured))
            else:
                checked.append(Checked(Status(outcome.status), outcome.message, command))
        return checked

    def _judge(self, tunable: TunableTask, module: Path, command: str, configured: TunedTask | None) -> Checked:
        if self._arch is None or not isinstance(tunable.limits, GpuLimits):
            return Checked(Status.OK, "", command)
        try:
            figures = kernel_figures(module, self._arch, self._machine, self._ptxas)
        except WorkError as error:
            return Checked(Status.INVALID, str(error), command)
        # An isolated program has one dispatch.
        ((name, kernel),) = figures.items()
        problems = [kernel.problem(tunable.limits.workgroup_memory_bytes)] if configured else []
        if configured:
            problems += _landing_problems(module, [name], configured)
        problem = next(filter(None, problems), "")
        return Checked(Status.INVALID if problem else Status.OK, problem, command, kernel)

    def lost_in(self, module: Path, tasks: Iterable[Task], tuned: Mapping[str, TunedTask]) -> dict[str, str]:
        """Return, by task, why the code in a whole model is not what was configured."""
        if self._arch is None:
            return {}
        problems = {
            task.id: _landing_problems(module, task.exports, tuned[task.id]) for task in tasks if task.id in tuned
        }
        return {id_: next(filter(None, found)) for id_, found in problems.items() if any(found)}


def _landing_problems(module: Path, names: Sequence[str], configured: TunedTask) -> list[str]:
    """Return the problem of each kernel called one of `names`, and that there is none."""
    kernels = [kernel for kernel in read_kernels(module) if kernel.name in names]
    if not kernels:
        return ["it has no kernel in the module"]
    return [landing_problem(kernel, configured.attributes.translation_info) for kernel in kernels]
