"""`felix-mlir schedule`: the transform script of a task, the loops it makes, and what may be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from felix_mlir.errors import RequestError, WorkError
from felix_mlir.schedule import Constraint, ScheduleTemplate, UnsupportedDispatchError
from felix_mlir.symbolic import Structure, TilingError, structure_of, tile, tile_symbolically, tuning_script
from felix_mlir.tasks import Task, TunableTask


class ListedKnob(TypedDict):
    """One knob: `dimension` of the dispatch (its trip count is `extent`), `value` when it is fixed."""

    name: str
    dimension: int
    level: str
    extent: int
    options: list[int]
    value: int | None


class ListedConstraint(TypedDict):
    """One rule: `holds` says whether the fixed knobs meet it, None while one of its knobs is open."""

    message: str
    knobs: list[str]
    holds: bool | None


class ListedSchedule(TypedDict):
    """What `--json` prints."""

    task: str
    template: str
    knobs: list[ListedKnob]
    constraints: list[ListedConstraint]


def schedule_script(task: Task, fixed: Mapping[str, int]) -> str:
    """Return the task's transform script, knobs not in `fixed` left open; raises RequestError."""
    _, template = _checked(task, fixed)
    return tuning_script(template, fixed, _structure(template, fixed))


def tiled_ir(task: Task, fixed: Mapping[str, int]) -> str:
    """Return what the script makes of the task: tiled IR with the knobs not in `fixed` as symbols.

    Raises RequestError, and WorkError when the script does not apply.
    """
    tunable, template = _checked(task, fixed)
    try:
        if _is_complete(template, fixed):
            module = tile(template, tunable.configured, fixed)
        else:
            module = tile_symbolically(template, tunable.configured, _structure(template, fixed), fixed)
    except (TilingError, UnsupportedDispatchError) as error:
        raise WorkError(f"task {task.id}: its script does not apply to {tunable.configured}: {error}") from error
    return str(module)


def list_schedule(task: Task, fixed: Mapping[str, int]) -> ListedSchedule:
    """Return what there is to choose, as plain data; raises RequestError."""
    _, template = _checked(task, fixed)
    return {
        "task": task.id,
        "template": template.name,
        "knobs": [
            {
                "name": knob.name,
                "dimension": knob.dim,
                "level": knob.level.value,
                "extent": knob.extent,
                "options": list(knob.options),
                "value": fixed.get(knob.name),
            }
            for knob in template.knobs
        ],
        "constraints": [
            {"message": c.message, "knobs": list(c.knobs), "holds": _holds(c, fixed)} for c in template.constraints
        ],
    }


def _checked(task: Task, fixed: Mapping[str, int]) -> tuple[TunableTask, ScheduleTemplate]:
    """The task's template, once `fixed` is known to be within it and legal as far as it goes."""
    if task.tunable is None:
        raise RequestError(f"task {task.id} has no schedule to choose: {task.reason}")
    template = task.tunable.templates[0]
    knobs = {knob.name: knob for knob in template.knobs}
    for name, value in fixed.items():
        if name not in knobs:
            raise RequestError(f"task {task.id} has no knob {name}; it has {', '.join(knobs)}")
        if value not in knobs[name].options:
            raise RequestError(f"{name} = {value} is not one of {', '.join(map(str, knobs[name].options))}")
    broken = [c.message for c in template.constraints if _holds(c, fixed) is False]
    if broken:
        raise RequestError(f"task {task.id}: {'; '.join(broken)}")
    return task.tunable, template


def _holds(constraint: Constraint, fixed: Mapping[str, int]) -> bool | None:
    if not fixed.keys() >= set(constraint.knobs):
        return None
    return bool(constraint.holds({name: np.array([fixed[name]]) for name in constraint.knobs})[0])


def _is_complete(template: ScheduleTemplate, fixed: Mapping[str, int]) -> bool:
    return all(knob.name in fixed for knob in template.knobs)


def _structure(template: ScheduleTemplate, fixed: Mapping[str, int]) -> Structure:
    """With knobs open, the one that has every level."""
    return structure_of(template, fixed) if _is_complete(template, fixed) else Structure()
