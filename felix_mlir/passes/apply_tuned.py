"""Writing tuned configurations into a compiled module, and saying of them and of rewrites which landed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from iree.compiler import ir

from felix_mlir.passes.canonical import canonical_form, difference
from felix_mlir.passes.rewrites import Rewrites, missing_roots
from felix_mlir.passes.tuned import Tuned, TunedTask
from felix_mlir.schedule import ConfigurationError, configured_functions, read_attributes, write_attributes
from felix_mlir.schedule.dispatch import walk

PREFIX = "felix: "
_LANDED, _NOT_LANDED, _NOT_FOUND = "landed in", "did not land in", "has no dispatch here"
_REWRITTEN, _NOT_REWRITTEN = "was rewritten", "is not here: its rewrite was not applied"


@dataclass
class Landing:
    """What became of a tuned task: `executables` has, for each dispatch of its form, "" or why it did not land.

    `near` says, where there is no such dispatch, which one differs least and in what; "" for none.
    """

    task: str
    executables: dict[str, str]
    near: str = ""

    @property
    def subject(self) -> str:
        return f"task {self.task}"

    @property
    def is_found(self) -> bool:
        return bool(self.executables)

    @property
    def has_landed(self) -> bool:
        return self.is_found and not self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether a dispatch that is there did not take the configuration."""
        return any(self.executables.values())

    @property
    def problem(self) -> str:
        """Why it is not in the module, in one line; "" if it is."""
        if not self.is_found:
            return f"{_NOT_FOUND}{f' ({self.near})' if self.near else ''}"
        return "; ".join(f"{_NOT_LANDED} {name}: {why}" for name, why in self.executables.items() if why)

    def lines(self) -> list[str]:
        """Return a line per dispatch, or the one that says there is none."""
        if not self.is_found:
            return [f"{PREFIX}{self.subject} {self.problem}"]
        return [
            f"{PREFIX}{self.subject} {_NOT_LANDED if why else _LANDED} {name}{f': {why}' if why else ''}"
            for name, why in self.executables.items()
        ]


@dataclass(frozen=True)
class RewriteLanding:
    """Whether a root op of a result was rewritten, in the terms of `Landing`."""

    root: str
    has_landed: bool

    @property
    def subject(self) -> str:
        return f"op {self.root}"

    @property
    def is_found(self) -> bool:
        return self.has_landed

    @property
    def is_lost(self) -> bool:
        return not self.has_landed

    @property
    def problem(self) -> str:
        return "" if self.has_landed else _NOT_REWRITTEN

    def lines(self) -> list[str]:
        return [f"{PREFIX}{self.subject} {self.problem or _REWRITTEN}"]


def check_rewrites(module: ir.Operation, rewrites: Rewrites) -> list[RewriteLanding]:
    """Say which rewrites were applied to a module, right after the preprocessing phase."""
    missing = missing_roots(module, rewrites.roots)
    return [RewriteLanding(root, root not in missing) for root in rewrites.roots]


def apply_tuned(module: ir.Operation, tuned: Tuned) -> list[Landing]:
    """Set the configuration of every dispatch whose form is a task's, in place.

    `module` is at the executable-configurations phase. A configuration landed when all compute ops carry it; whether
    code generation heeds it shows later, see `check_workgroups`.
    """
    taken: dict[str, str] = {}

    def write(name: str, function: ir.Operation, task: TunedTask) -> str:
        if (owner := taken.setdefault(name, task.id)) != task.id:
            return f"task {owner} has the same form"
        try:
            write_attributes(function, task.attributes)
        except ConfigurationError as error:
            return str(error)
        return _unlike(function, task)

    return _for_each_match(module, tuned, write)


def check_tuned(module: ir.Operation, tuned: Tuned) -> list[Landing]:
    """Say which configurations are in a module at the executable-configurations phase, however they got there."""
    return _for_each_match(module, tuned, lambda _, function, task: _unlike(function, task))


def _for_each_match(
    module: ir.Operation, tuned: Tuned, act: Callable[[str, ir.Operation, TunedTask], str]
) -> list[Landing]:
    functions = configured_functions(module)
    forms = {name: canonical_form(function) for name, function in functions.items()}
    landings: list[Landing] = []
    for task in tuned.tasks:
        matching = [name for name, form in forms.items() if form == task.form]
        executables = {name: act(name, functions[name], task) for name in matching}
        landings.append(Landing(task.id, executables, "" if matching else _nearest(task, forms)))
    return landings


def _unlike(function: ir.Operation, task: TunedTask) -> str:
    return "" if read_attributes(function) == task.attributes else "the attributes read back differently"


def check_workgroups(module: ir.Operation, tuned: Tuned, landings: Sequence[Landing]) -> None:
    """Add to `landings` where generated code launches other workgroups than configured.

    `module` is at the executable-targets phase. This catches a pipeline that ignores the configuration.
    """
    counts = workgroup_counts(module)
    expected = {task.id: task.workgroups for task in tuned.tasks}
    for landing in landings:
        wanted = expected[landing.task]
        for name, why in landing.executables.items():
            if wanted is not None and not why and counts.get(name) != wanted:
                launched = counts.get(name, "an unknown number of")
                landing.executables[name] = f"its code launches {launched} workgroups, not {wanted}"


def is_for_another(landings: Sequence[Landing | RewriteLanding]) -> bool:
    """Whether none of a result's tasks and ops is in the module: it was tuned for another model or target."""
    return bool(landings) and not any(landing.is_found for landing in landings)


def read_problems(output: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read what a driver printed of its landings (`Landing.lines`).

    Returns, by task, that there is no dispatch of it, and why one that is there did not take the configuration.
    """
    missing: dict[str, str] = {}
    lost: dict[str, str] = {}
    for line in output.splitlines():
        if line.startswith(f"{PREFIX}task "):
            task, what = line.removeprefix(f"{PREFIX}task ").split(" ", 1)
            if what.startswith(_NOT_FOUND):
                missing[task] = what
            elif what.startswith(_NOT_LANDED):
                lost[task] = "; ".join(filter(None, [lost.get(task, ""), what]))
    return missing, lost


def read_missing_roots(output: str) -> list[str]:
    """Read from what a driver printed (`RewriteLanding.lines`) which root ops were not rewritten."""
    head, tail = f"{PREFIX}op ", f" {_NOT_REWRITTEN}"
    lines = [line for line in output.splitlines() if line.startswith(head) and line.endswith(tail)]
    return [line.removeprefix(head).removesuffix(tail) for line in lines]


def apply_tuned_pass(
    tuned: Tuned, require_landed: bool, sink: Callable[[Landing], None] | None
) -> Callable[[Any, Any], None]:
    """Return `apply_tuned` as a pass for PassManager.add; it fails when a configuration does not land."""

    def run(operation: Any, pass_: Any) -> None:
        landings = apply_tuned(operation.operation, tuned)
        for landing in landings:
            if sink:
                sink(landing)
        lost = [landing for landing in landings if landing.is_lost]
        if lost and require_landed:
            with operation.context:
                location = operation.operation.location
                for landing in lost:
                    location.emit_error(f"{PREFIX}task {landing.task} {landing.problem}")
            pass_.signal_pass_failure()

    return run


def _nearest(task: TunedTask, forms: Mapping[str, str]) -> str:
    near = ((name, difference(form, task.form)) for name, form in forms.items())
    return next((f"{name} is like it, but {what}" for name, what in near if what), "")


def workgroup_counts(module: ir.Operation) -> dict[str, int]:
    """Number of workgroups each executable's export launches, where it is a constant."""
    counts: dict[str, int] = {}
    for executable in module.regions[0].blocks[0]:
        if executable.operation.name != "hal.executable":
            continue
        name = ir.StringAttr(executable.operation.attributes["sym_name"]).value
        for export in walk(executable):
            if export.name == "hal.executable.export":
                returned = [op for op in walk(export) if op.name == "hal.return"]
                sizes = [_constant(value) for value in returned[0].operands] if returned else [None]
                if None not in sizes:
                    counts[name] = prod(size for size in sizes if size is not None)
    return counts


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value
