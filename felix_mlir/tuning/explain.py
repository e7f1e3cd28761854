"""Why a run chose what it chose: a finished run's schedules as the cost model, adapted to its records, sees them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch

from felix_mlir.cost import NO_FEATURES, AdaptedModel, OnlineModel, ScheduleEncoder, read_machine
from felix_mlir.cost import model as cost_model
from felix_mlir.cost.inputs import TERMS
from felix_mlir.errors import WorkError
from felix_mlir.features import MachineError
from felix_mlir.records import Record
from felix_mlir.report import StructureReport, TaskReport
from felix_mlir.schedule import KnobValues, ScheduleTemplate
from felix_mlir.tuning.finished import FinishedRun, read_run
from felix_mlir.tuning.lost import Difference, differences, quantities

# Warm: a reader wants the trend over whole factors of a size, not the slope within a fraction of a unit.
TEMPERATURE = 4.0
_MOVES = 3


class ExplainedKnob(TypedDict):
    """Sizes; `default` is None where the template cannot express it.

    `gradient` is d log(predicted latency) / d log(size) at the chosen schedule: below 0 a larger size looks faster.
    """

    chosen: int
    default: int | None
    gradient: float


class ExplainedSchedule(TypedDict):
    """The prediction and its standard deviation in microseconds, and the bound below it.

    `terms` are the seconds each resource would take if only it counted, summed over stages, and those of the launch.
    The slowest of every stage make up the bound; `bound_by` has the largest part of it, `bound_share` says how large.
    """

    predicted_us: float
    deviation_us: float
    bound_us: float
    terms: dict[str, float]
    bound_by: str
    bound_share: float


class ActiveConstraint(TypedDict):
    """A constraint that forbids to make a knob `step` ("larger" or "smaller"): its next option is `size`."""

    knob: str
    step: str
    size: int
    message: str


class Move(TypedDict):
    """A legal change of one knob to `size`; `ratio` is its predicted latency over the chosen schedule's."""

    knob: str
    size: int
    ratio: float


class Lost(TypedDict):
    """`ratio` is the default's measured latency over the chosen one's; what differs most comes first."""

    ratio: float
    differences: list[Difference]


class ExplainedTask(TypedDict):
    """`default_us` and `chosen_us` were measured, for one launch of the isolated dispatch; None if it was not tuned.

    `chosen` is the default where `keeps_default`, with its reason. `is_used` says that tuned.vmfb has the chosen
    schedule. What cannot be said is None or empty, and `reason` says why.
    """

    id: str
    kind: str
    iteration_space: list[int]
    template: str | None
    keeps_default: bool
    is_used: bool
    reason: str
    default_us: float | None
    chosen_us: float | None
    knobs: dict[str, ExplainedKnob]
    chosen: ExplainedSchedule | None
    default: ExplainedSchedule | None
    constraints: list[ActiveConstraint]
    moves: list[Move]
    lost: Lost | None


class Explanation(TypedDict):
    """What `felix-mlir explain --json` prints."""

    model: str
    target: str
    structures: list[StructureReport]
    tasks: list[ExplainedTask]


def explain_run(directory: Path, folder: Path, only: str | None = None) -> Explanation:
    """Explain every task of the finished run in `directory`, or the one called `only`; files made go to `folder`.

    Raises RequestError for a folder that holds no run of this machine that can be explained, and WorkError.
    """
    run = read_run(directory, folder, only)
    try:
        machine = read_machine(run.target)
    except MachineError as error:
        raise WorkError(f"reading what this machine is: {error}") from error
    own = run.workspace.cost_model
    model = OnlineModel(cost_model.CostModel.load(own if own.exists() else cost_model.SHIPPED), machine)
    tuned = {row["id"]: row for row in run.report["tasks"] if row["default_us"] is not None}
    encoders: dict[str, ScheduleEncoder] = {}
    for id_, row in tuned.items():
        tunable, template = run.schedulable(row)
        encoders[id_] = model.encoder(template, tunable.configured, tunable.vector_bytes)
        with contextlib.suppress(*NO_FEATURES):
            _observe(model, run, row, encoders[id_])
    rows = [row for row in run.report["tasks"] if only in (None, row["id"])]
    explained = [_explain(run, row, model, encoders) if row["id"] in tuned else _untouched(run, row) for row in rows]
    report = run.report
    structures = report["structures"] if only is None else []
    return Explanation(model=report["model"], target=run.target.name, structures=structures, tasks=explained)


def _observe(model: OnlineModel, run: FinishedRun, row: TaskReport, encoder: ScheduleEncoder) -> None:
    """Show the model what the run measured of a task."""
    measured = list(_measured(run.records(row["id"]), encoder.template, 1e-6 * (row["default_us"] or 0.0)))
    if measured:
        points, latencies = zip(*measured, strict=True)
        model.observe(row["id"], encoder.exact(np.array(points)), torch.log(torch.tensor(latencies)))


def _measured(
    records: Sequence[Record], template: ScheduleTemplate, default_s: float
) -> Iterator[tuple[list[int], float]]:
    """Yield sizes and seconds of the records of a template, scaled as if its default had taken `default_s`."""
    names = [knob.name for knob in template.knobs]
    for record in records:
        # Another version of the templates may have had other knobs.
        latency_s = record.latency_beside(default_s)
        if latency_s is not None and record.template == template.name and set(record.knobs) == set(names):
            yield [record.knobs[name] for name in names], latency_s


def _untouched(run: FinishedRun, row: TaskReport) -> ExplainedTask:
    """Describe a task of which nothing was measured."""
    return ExplainedTask(
        id=row["id"], kind=row["kind"], iteration_space=row["iteration_space"], template=row["template"],
        keeps_default=row["knobs"] is None, is_used=row["id"] in run.used, reason=row["reason"], default_us=None,
        chosen_us=None, knobs={}, chosen=None, default=None, constraints=[], moves=[], lost=None,
    )  # fmt: skip


def _explain(
    run: FinishedRun, row: TaskReport, model: OnlineModel, encoders: dict[str, ScheduleEncoder]
) -> ExplainedTask:
    """Explain a task that was tuned."""
    tunable, template = run.schedulable(row)
    encoder, default = encoders[row["id"]], template.values_of(tunable.default)
    # JSON keeps no promise about the order of knobs.
    chosen_knobs = row["knobs"]
    values = {knob.name: chosen_knobs[knob.name] for knob in template.knobs} if chosen_knobs else default
    explained = _untouched(run, row)
    explained["default_us"] = row["default_us"]
    # A schedule that was dropped after its measurement has left its latency in the report.
    explained["chosen_us"] = row["tuned_us"] if row["knobs"] else row["default_us"]
    if row["knobs"] and row["speedup"] is not None:
        explained["lost"] = Lost(ratio=row["speedup"], differences=[])
    if values is None:
        explained["reason"] += "; the template cannot express it"
        return explained
    adapted = model.adapted(row["id"])
    try:
        slopes = gradient(adapted, encoder, values)
        explained["knobs"] = {
            name: ExplainedKnob(chosen=values[name], default=default[name] if default else None, gradient=slope)
            for name, slope in slopes.items()
        }
        explained["constraints"] = list(active_constraints(template, values))
        explained["moves"] = best_moves(adapted, encoder, values)
        explained["chosen"] = chosen = describe_schedule(adapted, encoder, values)
        if default is not None:
            explained["default"] = before = describe_schedule(adapted, encoder, default)
            if explained["lost"] is not None:
                old, new = (quantities(encoder.features(_point(encoder, v)[0])) for v in (default, values))
                found = differences({**old, **before["terms"]}, {**new, **chosen["terms"]})
                explained["lost"]["differences"] = found
    except NO_FEATURES as error:
        reasons = (row["reason"], f"its features cannot be derived: {error}")
        explained["reason"] = "; ".join(reason for reason in reasons if reason)
    return explained


def describe_schedule(model: AdaptedModel, encoder: ScheduleEncoder, values: KnobValues) -> ExplainedSchedule:
    """Predict a schedule, and say what its bound is made of."""
    inputs = encoder.exact(_point(encoder, values))
    with torch.no_grad():
        prediction = model.predict(inputs)
    predicted_us = 1e6 * math.exp(prediction.mean.item())
    terms = inputs.terms[0]
    slowest, by = terms.max(dim=1)
    launch_s = encoder.machine.rates.launch_s
    bound_s = math.exp(inputs.log_bound.item())
    # What the stages add to the bound, the imbalance of workgroups included, over their slowest terms.
    stretch = max(0.0, bound_s - launch_s) / max(slowest.sum().item(), 1e-30)
    parts = {name: stretch * slowest[by == index].sum().item() for index, name in enumerate(TERMS)}
    bound_by, part = max({**parts, "launch": launch_s}.items(), key=lambda item: item[1])
    return ExplainedSchedule(
        predicted_us=predicted_us,
        deviation_us=predicted_us * prediction.deviation.item(),
        bound_us=1e6 * bound_s,
        terms={**dict(zip(TERMS, terms.sum(dim=0).tolist(), strict=True)), "launch": launch_s},
        bound_by=bound_by,
        bound_share=part / bound_s,
    )


def gradient(model: AdaptedModel, encoder: ScheduleEncoder, values: KnobValues) -> dict[str, float]:
    """Derive the relaxed log prediction by the log of each knob; all from one backward pass."""
    point = _point(encoder, values)
    (structure,) = encoder.structures_of(point)
    # Features bend within a fraction of a unit, which single precision blurs.
    logs = torch.log(torch.from_numpy(point).double()).requires_grad_()
    inputs = encoder.relaxed(structure, torch.exp(logs), TEMPERATURE)
    (slopes,) = torch.autograd.grad(model.double().predict(inputs).mean.sum(), logs)
    return dict(zip(values, torch.nan_to_num(slopes)[0].tolist(), strict=True))


def active_constraints(template: ScheduleTemplate, values: KnobValues) -> Iterator[ActiveConstraint]:
    """Yield the constraints that one step of one knob, to its next option, would break."""
    for knob in template.knobs:
        smaller = [size for size in knob.options if size < values[knob.name]][-1:]
        larger = [size for size in knob.options if size > values[knob.name]][:1]
        for step, sizes in (("smaller", smaller), ("larger", larger)):
            for size in sizes:
                for message in template.violations({**values, knob.name: size}):
                    yield ActiveConstraint(knob=knob.name, step=step, size=size, message=message)


def best_moves(model: AdaptedModel, encoder: ScheduleEncoder, values: KnobValues) -> list[Move]:
    """Return the legal changes of a single knob that are predicted to be fastest."""
    template, here = encoder.template, _point(encoder, values)
    changes = [(k, size) for k in template.knobs for size in k.options if size != values[k.name]]
    points = np.array([[{**values, k.name: size}[name] for name in values] for k, size in changes])
    legal = np.flatnonzero(template.satisfied(points).all(axis=1)) if changes else np.zeros(0, dtype=int)
    if not len(legal):
        return []
    with torch.no_grad():
        mean = model.predict(encoder.exact(np.concatenate([here, points[legal]]))).mean
    ratios = torch.exp(mean[1:] - mean[0])
    best = torch.argsort(ratios, stable=True)[:_MOVES].tolist()
    return [Move(knob=changes[legal[i]][0].name, size=changes[legal[i]][1], ratio=ratios[i].item()) for i in best]


def _point(encoder: ScheduleEncoder, values: KnobValues) -> np.ndarray:
    return np.array([[values[knob.name] for knob in encoder.template.knobs]])
