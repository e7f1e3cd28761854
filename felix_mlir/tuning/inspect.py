"""Looking at a model's tasks without tuning them."""

from __future__ import annotations

from pathlib import Path

from felix_mlir.apply import DEFAULT, compile_to_flow, with_tasks
from felix_mlir.errors import RequestError
from felix_mlir.importers import load_model
from felix_mlir.report import SilentProgress, TaskIdentity
from felix_mlir.target import device_names, parse_target
from felix_mlir.tasks import Task, extract_tasks
from felix_mlir.tuning.model_stage import FIRST_COMPILE_TIMEOUT_S, ModelStage
from felix_mlir.tuning.session import open_session
from felix_mlir.tuning.workspace import Workspace


class InspectedTask(TaskIdentity):
    """One task of the model as the compiler forms it by default; `reason` says why `templates` is empty."""

    templates: list[str]
    reason: str


def read_tasks(source: str, target_name: str, folder: Path) -> list[Task]:
    """Return every task of a model as the compiler forms it by default, neither run nor profiled.

    Their files stay in `folder`. Raises RequestError.
    """
    target = parse_target(target_name)
    flow = folder / "flow.mlirbc"
    model, plain = load_model(source, folder / "model"), with_tasks(source, target, DEFAULT)
    outcome = compile_to_flow(model, plain, flow, FIRST_COMPILE_TIMEOUT_S)
    if not outcome.ok:
        raise RequestError(f"iree-compile rejects {source}: {outcome.message}")
    return extract_tasks(flow, target, folder / "tasks")


def find_task(tasks: list[Task], id_: str) -> Task:
    """Return the task called `id_`; raises RequestError."""
    found = {task.id: task for task in tasks}
    if id_ not in found:
        raise RequestError(f"the model has no task {id_}; it has {', '.join(found)}")
    return found[id_]


def inspect_tasks(source: str, target_name: str, folder: Path) -> list[InspectedTask]:
    """Return every task of a model, compiled in `folder` and, on a machine with its device, profiled.

    Raises RequestError and WorkError.
    """
    target = parse_target(target_name)
    with (
        Workspace(folder) as workspace,
        open_session(target, workspace, workspace.records, SilentProgress()) as session,
    ):
        stage = ModelStage(load_model(source, workspace.work / "model"), workspace, session)
        is_here = bool(device_names(target))
        tasks = stage.tasks(stage.build_default()) if is_here else stage.extract(stage.compile_default())
    return [
        InspectedTask(
            id=task.id,
            kind=task.kind,
            iteration_space=list(task.iteration_space),
            element_types=task.element_types,
            count=task.count,
            share=task.share,
            templates=[template.name for template in task.tunable.templates] if task.tunable else [],
            reason=task.reason,
        )
        for task in tasks
    ]
