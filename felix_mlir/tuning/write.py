"""Writing a result: the module that is kept, and the files that say what is in it and how to make it again."""

from __future__ import annotations

from collections.abc import Sequence

from felix_mlir.passes.tuned import write_tuned
from felix_mlir.tasks import Task
from felix_mlir.tuning.finish import Result
from felix_mlir.tuning.manifest import make_manifest
from felix_mlir.tuning.request import RunRequest
from felix_mlir.tuning.schedules import schedules_text, spec_text
from felix_mlir.tuning.workspace import copy_whole, write_json, write_whole


def write_result(request: RunRequest, tasks: Sequence[Task], result: Result, notes: list[str]) -> None:
    """Write everything but the report; what a user of the module must know is added to `notes`."""
    model, workspace = request.model, request.workspace
    copy_whole(result.build.vmfb, workspace.tuned)
    if model.parameters is not None and not model.embed_parameters:
        copy_whole(model.parameters, workspace.parameters)
        notes.append(
            f"the weights are outside: run it as iree-run-module --module={workspace.tuned} "
            f"--parameters=model={workspace.parameters}"
        )
    write_json(workspace.manifest, make_manifest(request, result))
    write_tuned(result.build.tuned, workspace.configurations)
    write_whole(workspace.spec, spec_text(tasks, result))
    write_whole(workspace.schedules, schedules_text(tasks, result))
