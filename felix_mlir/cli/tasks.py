"""`felix-mlir tasks`: the tasks of a model without tuning anything."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.table import Table

from felix_mlir.report import wide_console
from felix_mlir.tuning.inspect import InspectedTask, inspect_tasks


def list_tasks(source: str, target: str) -> list[InspectedTask]:
    """Compile and profile a model in a temporary folder; raises RequestError and WorkError."""
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        return inspect_tasks(source, target, Path(folder))


def show_tasks(tasks: list[InspectedTask]) -> None:
    table = Table("task", "root op", "iteration space", "types", "count", "share", "template", box=None, pad_edge=False)
    for task in tasks:
        table.add_row(
            task["id"],
            task["kind"],
            "x".join(map(str, task["iteration_space"])),
            task["element_types"],
            str(task["count"]),
            f"{task['share']:.1%}",
            ", ".join(task["templates"]) or f"none: {task['reason']}",
        )
    wide_console().print(table)
