"""The tasks of a model: read from its `flow` phase, de-duplicated, isolated and configured by the compiler."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from iree.compiler import ir

from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.schedule import (
    ConfigurationError,
    UnsupportedDispatchError,
    configured_functions,
    default_of,
    limits_of,
    read_dispatch,
    templates_of,
)
from felix_mlir.schedule.dispatch import walk
from felix_mlir.target import Target
from felix_mlir.tasks.isolate import IsolationError, TensorType, isolate
from felix_mlir.tasks.kind import root_kind
from felix_mlir.tasks.task import Task, TunableTask

_COMPILE_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class _Group:
    """Equal executables of one model and the calls of all of them."""

    id: str
    executables: list[ir.Operation]
    calls: list[ir.Operation]


def extract_tasks(flow: Path, target: Target, directory: Path) -> list[Task]:
    """Return every task of the model whose `flow` phase is in the file `flow`, in order of appearance.

    Isolated programs go to `directory`, one folder a task. A dispatch nothing can be done for is a task all the
    same, with the reason.
    """
    with ir.Context() as context:
        module = ir.Module.parse(flow.read_bytes(), context)
        groups = _group(module, target)
        programs = [_isolated(module, group, directory / group.id) for group in groups]
        failures = run_parallel(target.cores, [partial(_configure, program[0], target) for program in programs])
        return [
            _task(group, program, inputs, reason or failure)
            for group, (program, inputs, reason), failure in zip(groups, programs, failures, strict=True)
        ]


def group_executables(flow: Path, target: Target) -> dict[str, list[str]]:
    """Return the names of a model's executables by the id of the task they belong to."""
    with ir.Context() as context:
        groups = _group(ir.Module.parse(flow.read_bytes(), context), target)
        return {group.id: [_symbol(executable) for executable in group.executables] for group in groups}


def _group(module: ir.Module, target: Target) -> list[_Group]:
    calls: dict[str, list[ir.Operation]] = {}
    for op in module.body.operations:
        # Initialisers run once, when the module is loaded: what they launch is no part of a run.
        if op.operation.name == "util.func":
            for call in walk(op):
                if call.name == "flow.dispatch":
                    calls.setdefault(_executable_of(call), []).append(call)
    groups: dict[str, _Group] = {}
    for op in module.body.operations:
        if op.operation.name == "flow.executable":
            name = _symbol(op.operation)
            id_ = task_id(op.operation, target)
            group = groups.setdefault(id_, _Group(id_, [], []))
            group.executables.append(op.operation)
            group.calls.extend(calls.get(name, []))
    return list(groups.values())


def task_id(executable: ir.Operation, target: Target) -> str:
    """Hash a flow.executable and the target; names, locations and SSA names do not count."""
    text = executable.get_asm(print_generic_op_form=True, use_local_scope=True, enable_debug_info=False)
    names = {_symbol(op) for op in walk(executable) if "sym_name" in op.attributes}
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(f'"{name}"', '"_"').replace(f"@{name}", "@_")
    # Weights small enough to sit in the dispatch are data, not structure, and their names come from the model.
    text = re.sub(r"dense_resource<[^>]*>|dense<[^>]*>(?= : tensor)", "dense<_>", text)
    return hashlib.sha256(f"{target.name}\n{text}".encode()).hexdigest()[:12]


def _isolated(module: ir.Module, group: _Group, folder: Path) -> tuple[Path | None, tuple[TensorType, ...], str]:
    """Write the isolated program; returns its path, argument types and, when there is none, the reason."""
    if not group.calls:
        return None, (), "it runs only once, when the model is loaded"
    # Executables of one group differ in name only, so the one that some call names stands for all.
    call = group.calls[0]
    name = _executable_of(call)
    executable = next(op for op in group.executables if _symbol(op) == name)
    try:
        program, inputs = isolate(module, executable, call)
    except IsolationError as error:
        return None, (), str(error)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "program.mlirbc"
    with path.open("wb") as file:
        program.operation.write_bytecode(file)
    return path, tuple(inputs), ""


def _configure(program: Path | None, target: Target) -> str:
    """Bring an isolated program to the executable-configurations phase; returns why that failed, or ""."""
    if program is None:
        return ""
    command = [
        tool_path("iree-compile"), str(program), "--compile-from=flow", "--compile-to=executable-configurations",
        "--iree-codegen-add-tuner-attributes", *target.compile_flags,
    ]  # fmt: skip
    outcome = run_compiler([*command, "-o", str(_configured_path(program))], _COMPILE_TIMEOUT_S)
    if not outcome.ok:
        return f"it does not compile by itself: {outcome.message}"
    if target.device == "cuda":
        # In a program of its own, because it is not compiled further. The compiler can crash where it has no rules.
        rules = ["--iree-codegen-emit-pipeline-constraints", "-o", str(_constraints_path(program))]
        run_compiler([*command, *rules], _COMPILE_TIMEOUT_S)
    return ""


def _configured_path(program: Path) -> Path:
    return program.with_name("configured.mlir")


def _constraints_path(program: Path) -> Path:
    return program.with_name("constraints.mlir")


def _task(group: _Group, program: Path | None, inputs: Sequence[TensorType], reason: str) -> Task:
    exports = tuple(
        _symbol(op)
        for executable in group.executables
        for op in walk(executable)
        if op.name == "flow.executable.export"
    )
    tunable: TunableTask | None = None
    kind, elements, space = "other", "", ()
    if program is not None and not reason:
        module = ir.Module.parse(_configured_path(program).read_text())
        try:
            function = next(iter(configured_functions(module.operation).values()), None)
            if function is None:
                raise UnsupportedDispatchError("the compiler chose no configuration for it")
            dispatch = read_dispatch(function)
            kind, space = root_kind(dispatch.root), dispatch.root.extents
            elements = "x".join(dict.fromkeys(o.element_type for o in dispatch.root.operands))
            default, limits = default_of(function), limits_of(module.operation)
            stated = _constraints_path(program)
            constraints = ir.Module.parse(stated.read_text()).operation if stated.exists() else None
            templates = tuple(templates_of(dispatch, default, limits, constraints))
            if not any(template.knobs for template in templates):
                raise UnsupportedDispatchError("every loop runs once, there is nothing to choose")
            tunable = TunableTask(_configured_path(program), tuple(inputs), dispatch, default, templates, limits)
        except (UnsupportedDispatchError, ConfigurationError) as error:
            reason = str(error)
    return Task(
        id=group.id,
        kind=kind,
        executables=tuple(_symbol(op) for op in group.executables),
        exports=exports,
        count=len(group.calls),
        element_types=elements,
        iteration_space=space,
        tunable=tunable,
        reason=reason,
    )


def _executable_of(call: ir.Operation) -> str:
    entry = ir.SymbolRefAttr(ir.ArrayAttr(call.attributes["entry_points"])[0])
    return entry.value[0]


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value
