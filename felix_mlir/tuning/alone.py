"""What tasks cost where no profiler says it: each default timed by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from felix_mlir.importers import random_inputs
from felix_mlir.measure import Program, save_arrays
from felix_mlir.tasks import Task
from felix_mlir.tuning.programs import INPUT_SEED, MAX_REPEATS, RUN_TIMEOUT_S, TIMING, TaskPrograms
from felix_mlir.tuning.session import Session


def time_alone(tasks: Sequence[Task], session: Session, folder: Path) -> list[Task]:
    """Return the tasks with what a launch takes and the share of the run time of those that could be timed.

    Dispatches that cannot stand alone, and those that fail, have neither: the shares are of what is known. Files go to
    `folder`, one below it a task.
    """
    launch_s = {task.id: _launch_s(task, session, folder / task.id) for task in tasks}
    total_s = sum(task.count * (launch_s[task.id] or 0.0) for task in tasks)
    return [
        task if (seconds := launch_s[task.id]) is None
        else replace(task, share=task.count * seconds / total_s, launch_s=seconds)
        for task in tasks
    ]  # fmt: skip


def _launch_s(task: Task, session: Session, folder: Path) -> float | None:
    if task.tunable is None:
        return None
    inputs = folder / "inputs.npz"
    save_arrays(inputs, "arg", list(random_inputs([(i.shape, i.dtype) for i in task.tunable.inputs], INPUT_SEED)))
    # How long one takes is not known yet, and repeating it too often costs less than measuring the call.
    job = TaskPrograms(task, session.target, MAX_REPEATS, folder).default
    (outcome,) = session.builder.build([job])
    if not outcome.ok:
        return None
    latency_s = session.runner.measure(Program(job.output, inputs), TIMING, RUN_TIMEOUT_S).latency_s
    return None if latency_s is None else latency_s / MAX_REPEATS
