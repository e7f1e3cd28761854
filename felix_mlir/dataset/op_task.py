"""The task of a module that holds one op."""

from __future__ import annotations

from math import prod
from pathlib import Path

from felix_mlir.apply import DEFAULT, compile_to_flow, with_tasks
from felix_mlir.errors import WorkError
from felix_mlir.importers import load_model
from felix_mlir.target import Target
from felix_mlir.tasks import Task, extract_tasks

_COMPILE_TIMEOUT_S = 120.0


def op_task(mlir: str, target: Target, folder: Path) -> Task:
    """Return the task of a module's costliest dispatch, compiled in `folder`; raises WorkError when none is tunable."""
    folder.mkdir(parents=True, exist_ok=True)
    source, flow = folder / "op.mlir", folder / "flow.mlirbc"
    source.write_text(mlir)
    plain = with_tasks(source.name, target, DEFAULT)
    outcome = compile_to_flow(load_model(source, folder), plain, flow, _COMPILE_TIMEOUT_S)
    if not outcome.ok:
        raise WorkError(f"iree-compile rejects {source}: {outcome.message}")
    tasks = extract_tasks(flow, target, folder / "tasks")
    tunable = [task for task in tasks if task.tunable is not None]
    if not tunable:
        raise WorkError(f"{source} has nothing to tune: {'; '.join(task.reason for task in tasks)}")
    return max(tunable, key=lambda task: prod(task.iteration_space))
