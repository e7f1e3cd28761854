"""The dispatches of a module and the configurations they carry, as tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iree.compiler import ir

from felix_mlir.passes.canonical import canonical_form
from felix_mlir.schedule import ConfigurationAttributes, configured_functions, read_attributes


@dataclass(frozen=True)
class ExtractedTask:
    """Dispatches of one canonical form: the executables that hold them, and the configuration of the first."""

    executables: tuple[str, ...]
    form: str
    attributes: ConfigurationAttributes


def extract_configured(module: ir.Operation) -> list[ExtractedTask]:
    """Return the tasks of a module at the executable-configurations phase, in order of appearance."""
    functions = configured_functions(module)
    groups: dict[str, list[str]] = {}
    for name, function in functions.items():
        groups.setdefault(canonical_form(function), []).append(name)
    return [ExtractedTask(tuple(names), form, read_attributes(functions[names[0]])) for form, names in groups.items()]


def extract_tasks_pass(sink: Callable[[ExtractedTask], None]) -> Callable[[Any, Any], None]:
    """Return a pass for PassManager.add that calls `sink` once per task and changes nothing."""

    def run(operation: Any, _pass: Any) -> None:
        for task in extract_configured(operation.operation):
            sink(task)

    return run
