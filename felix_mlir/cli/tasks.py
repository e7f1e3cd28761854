"""`felix-mlir tasks`: the tasks of a model without tuning anything."""

from __future__ import annotations

import tempfile
from pathlib import Path

from felix_mlir.report import identity_cells, task_table, wide_console
from felix_mlir.tuning.inspect import InspectedTask, inspect_tasks


def list_tasks(source: str, target: str) -> list[InspectedTask]:
    """Compile and profile a model in a temporary folder; raises RequestError and WorkError."""
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        return inspect_tasks(source, target, Path(folder))


def show_tasks(tasks: list[InspectedTask]) -> None:
    table = task_table("template")
    for task in tasks:
        table.add_row(*identity_cells(task), ", ".join(task["templates"]) or f"none: {task['reason']}")
    wide_console().print(table)
