"""Structures that are tuned side by side: which one is best is not known before tile sizes have been searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from felix_mlir.search import TaskProgress
from felix_mlir.sketches import Layout, RootOp
from felix_mlir.target import Target
from felix_mlir.tasks import Task
from felix_mlir.tuning.model_stage import Build, ModelStage

# The part of a task's time that searching may still save before the first round: on six CPU ops the best of 300 random
# candidates saved up to 63 %, and the default sizes of a convolution on 256-bit vectors are farther off.
_HOPE = 0.75


@dataclass(frozen=True)
class Contender:
    """A build with its tasks. `op_seconds` has what each task takes of a run of it, by root op, at default sizes.

    Ops can have the code of different contenders of one `layout`, but not of different ones.
    """

    build: Build
    layout: Layout
    latency_s: float
    tasks: Sequence[Task]
    op_seconds: Mapping[str, Mapping[str, float]]

    def seconds(self, op: str, ratios: Mapping[str, float]) -> float:
        """Return what a root op takes if its tasks take `ratios` of their defaults; of one not listed, all.

        It is infinite where nobody can say because no launch could be told to compute the op.
        """
        if op not in self.op_seconds:
            return math.inf
        return sum(seconds * ratios.get(task, 1.0) for task, seconds in self.op_seconds[op].items())

    def tuned_s(self, ratios: Mapping[str, float]) -> float:
        """Return what a run is expected to take if tasks take `ratios` of their defaults; of one not listed, all."""
        saved = sum((task.share or 0.0) * (1 - ratios.get(task.id, 1.0)) for task in self.tasks)
        return self.latency_s * (1 - saved)


def contender(
    stage: ModelStage, target: Target, build: Build, layout: Layout, latency_s: float, roots: Sequence[RootOp]
) -> Contender:
    """Return a build that takes `latency_s` a run, divided over root ops where the target has a profiler."""
    if not target.has_profiler:
        return Contender(build, layout, latency_s, stage.tasks(build), {})
    profile = stage.profile(build.vmfb)
    tasks = stage.tasks(build, profile)
    task_of = {export: task.id for task in tasks for export in task.exports}
    op_seconds: dict[str, dict[str, float]] = {}
    for op, launches in stage.launch_seconds(build, latency_s, roots, profile).items():
        of_op = op_seconds.setdefault(op, {})
        for export in launches.keys() & task_of.keys():
            of_op[task_of[export]] = of_op.get(task_of[export], 0.0) + launches[export]
    return Contender(build, layout, latency_s, tasks, op_seconds)


class Contest:
    """Contenders, the first of which is the fastest at default sizes; each root op is decided by itself."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self.contenders = contenders
        self._of_layout: dict[Layout, list[Contender]] = {}
        for each in contenders:
            self._of_layout.setdefault(each.layout, []).append(each)
        self._ops = list(dict.fromkeys(op for each in contenders for op in each.op_seconds))

    @property
    def tasks(self) -> list[Task]:
        """The tasks of all contenders; their shares are of the first one's time."""
        found: dict[str, Task] = {}
        for each in self.contenders:
            factor = each.latency_s / self.contenders[0].latency_s
            for task in each.tasks:
                found.setdefault(task.id, replace(task, share=None if task.share is None else factor * task.share))
        return list(found.values())

    def in_play(self, progress: Mapping[str, TaskProgress]) -> set[str]:
        """Return the tasks that may be in the best model: all but those of sketches that have fallen too far behind.

        `progress` has that of the tasks that are searched.
        """
        ratios = {id_: task.ratios[-1] for id_, task in progress.items()}
        hopes = {id_: ratios[id_] * (1 - _hope(task)) for id_, task in progress.items()}
        first = self.contenders[0]
        found = {task.id for task in first.tasks} - {task for of_op in first.op_seconds.values() for task in of_op}
        best_s = min(self._total_s(layout, ratios) for layout in self._of_layout)
        for layout, contenders in self._of_layout.items():
            if self._total_s(layout, hopes) > best_s:
                continue
            for op in self._ops:
                best_of_op_s = min(each.seconds(op, ratios) for each in contenders)
                for each in contenders:
                    if each.seconds(op, hopes) <= best_of_op_s:
                        found |= each.op_seconds.get(op, {}).keys()
        return found

    def winners(self, ratios: Mapping[str, float]) -> dict[str, Contender]:
        """Return which contender has the fastest code for each root op, all of the fastest layout.

        Where none is faster it is the first.
        """
        layout = min(self._of_layout, key=lambda layout: self._total_s(layout, ratios))
        return {op: min(self._of_layout[layout], key=lambda each: each.seconds(op, ratios)) for op in self._ops}

    def _total_s(self, layout: Layout, ratios: Mapping[str, float]) -> float:
        """Return what all root ops take with the fastest code each has in a layout."""
        return sum(min(each.seconds(op, ratios) for each in self._of_layout[layout]) for op in self._ops)


def _hope(progress: TaskProgress) -> float:
    return 0.0 if progress.finished else _HOPE / len(progress.ratios)
