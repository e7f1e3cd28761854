"""`felix-mlir features`: what a schedule's features are, as expressions or at given knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import torch
from rich.table import Table

from felix_mlir.cli.settings import read_settings
from felix_mlir.cost.gpu_machine import read_gpu_machine
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.features import (
    ConstraintProgram,
    Feature,
    MachineLimits,
    Program,
    UnsupportedNestError,
    derive_features,
    read_host,
)
from felix_mlir.report import wide_console
from felix_mlir.schedule import GpuTemplate, KnobValues, ScheduleTemplate
from felix_mlir.symbolic import (
    LoopNest,
    ReadError,
    Structure,
    TilingError,
    lift_shapes,
    read_nest,
    structure_of,
    tile_symbolically,
)
from felix_mlir.tasks import Task

# Near enough to exact that the values agree at a glance, warm enough that gradients show the trend.
TEMPERATURE = 0.1


class DescribedFeature(TypedDict):
    """`exact`, `relaxed` and `gradient` (by the log of each knob) are None without knob values."""

    unit: str
    expr: str
    exact: float | int | None
    relaxed: float | None
    gradient: dict[str, float] | None


class DescribedConstraint(TypedDict):
    """`holds` and `penalty` are None without knob values."""

    message: str
    expr: str
    holds: bool | None
    penalty: float | None


class DescribedFeatures(TypedDict):
    """What `felix-mlir features --json` prints; `machine` and `extents` have the values of their symbols."""

    task: str
    template: str
    knobs: dict[str, int] | None
    machine: dict[str, int]
    extents: dict[str, int]
    features: dict[str, DescribedFeature]
    constraints: list[DescribedConstraint]


def describe_task(task: Task, settings: Sequence[str]) -> DescribedFeatures:
    """Describe the features of a task on this machine (or its GPU): expressions, or values where knobs are set.

    Knobs not set keep the compiler's own choice. The expressions are those of the loops that the values give; without
    values, of the nest that has every level. Raises RequestError and WorkError.
    """
    if task.tunable is None:
        raise RequestError(f"task {task.id} has no schedule and so no features: {task.reason}")
    template = task.tunable.templates[0]
    values = complete_settings(settings, template, template.values_of(task.tunable.default))
    structure = Structure() if values is None else structure_of(template, values)
    try:
        nest = read_nest(tile_symbolically(template, task.tunable.configured, structure), template)
        is_gpu = isinstance(template, GpuTemplate)
        machine = read_gpu_machine(template.limits.arch).limits if is_gpu else read_host()
        return describe_features(task.id, template, nest, machine, values)
    except (TilingError, ReadError, UnsupportedNestError) as error:
        raise WorkError(f"task {task.id}: no features of {task.tunable.configured}: {error}") from error


def complete_settings(
    settings: Sequence[str], template: ScheduleTemplate, default: KnobValues | None
) -> dict[str, int] | None:
    """Turn `knob=value` settings into a value per knob; knobs not set keep `default`'s. None without settings.

    Values need not be legal: what is wrong with them is part of the answer. Raises RequestError.
    """
    if not settings:
        return None
    names = [knob.name for knob in template.knobs]
    values = dict(default or {})
    for name, value in read_settings(settings).items():
        if value < 1:
            raise RequestError(f"--set {name}={value}: a size is 1 or more")
        if name not in names:
            raise RequestError(f"no knob is called {name}: this template has {', '.join(names)}")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise RequestError(f"the default schedule is not one of the template's: set {', '.join(missing)} as well")
    return values


def describe_features(
    task_id: str,
    template: ScheduleTemplate,
    nest: LoopNest,
    machine: MachineLimits,
    values: KnobValues | None = None,
    temperature: float = TEMPERATURE,
) -> DescribedFeatures:
    """Describe the features of a nest that `template` schedules, with values where knob values are given.

    Raises UnsupportedNestError and UnsupportedExpressionError for a nest without features.
    """
    lifted, extents = lift_shapes(nest)
    features = derive_features(lifted, template)
    symbols = machine.values() | extents
    return DescribedFeatures(
        task=task_id,
        template=template.name,
        knobs=None if values is None else {knob.name: values[knob.name] for knob in template.knobs},
        machine=machine.values(),
        extents=extents,
        features=_features(features, template, symbols, values, temperature),
        constraints=_constraints(template, values, temperature),
    )


def _features(
    features: list[Feature],
    template: ScheduleTemplate,
    symbols: Mapping[str, int],
    values: KnobValues | None,
    temperature: float,
) -> dict[str, DescribedFeature]:
    described = {
        f.name: DescribedFeature(unit=f.unit, expr=str(f.expr), exact=None, relaxed=None, gradient=None)
        for f in features
    }
    if values is None:
        return described
    names = [knob.name for knob in template.knobs]
    program = Program([(f.name, f.expr) for f in features], names)
    exact = program.exact({name: values[name] for name in names}, symbols)
    relaxed, gradients = program.gradients(_point(template, values), symbols, temperature=temperature)
    for row, name in enumerate(program.names):
        described[name]["exact"] = exact[name].item()
        described[name]["relaxed"] = float(relaxed[row])
        described[name]["gradient"] = dict(zip(names, gradients[row].tolist(), strict=True))
    return described


def _constraints(
    template: ScheduleTemplate, values: KnobValues | None, temperature: float
) -> list[DescribedConstraint]:
    described = [
        DescribedConstraint(message=c.message, expr=str(c.condition), holds=None, penalty=None)
        for c in template.constraints
    ]
    if values is None:
        return described
    program = ConstraintProgram(template.constraints, [knob.name for knob in template.knobs])
    point = _point(template, values)
    holds = program.holds(point.numpy().astype(int)[None, :])[0]
    penalties = program.penalties(point[None, :], temperature=temperature)[0]
    for constraint, ok, penalty in zip(described, holds, penalties, strict=True):
        constraint["holds"], constraint["penalty"] = bool(ok), float(penalty)
    return described


def _point(template: ScheduleTemplate, values: KnobValues) -> torch.Tensor:
    return torch.tensor([values[knob.name] for knob in template.knobs], dtype=torch.float64)


def show_features(described: DescribedFeatures) -> None:
    """Print expressions, or values with the knobs that move each feature most."""
    console = wide_console()
    if described["knobs"] is None:
        for name, feature in described["features"].items():
            console.print(f"{name} [{feature['unit']}] = {feature['expr']}", markup=False, highlight=False)
        for constraint in described["constraints"]:
            console.print(f"constraint: {constraint['message']}: {constraint['expr']}", markup=False, highlight=False)
        return
    table = Table("feature", "unit", "exact", "relaxed", "change per log knob", box=None, pad_edge=False)
    for name, feature in described["features"].items():
        gradient = sorted((feature["gradient"] or {}).items(), key=lambda item: -abs(item[1]))
        strongest = ", ".join(f"{knob} {slope:+.3g}" for knob, slope in gradient[:3] if slope)
        table.add_row(name, feature["unit"], _number(feature["exact"]), _number(feature["relaxed"]), strongest)
    console.print(table)
    for constraint in described["constraints"]:
        verdict = "holds" if constraint["holds"] else "BROKEN"
        console.print(f"{verdict}: {constraint['message']} (penalty {constraint['penalty']:.3g})", markup=False)


def _number(value: float | int | None) -> str:
    return "" if value is None else f"{value:d}" if isinstance(value, int) else f"{value:.6g}"
