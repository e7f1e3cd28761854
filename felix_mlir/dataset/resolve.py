"""A table and the templates of its op: what each row is in the terms of the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.dataset.op_task import op_task
from felix_mlir.dataset.table import Row, Table
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.schedule import Configuration, ScheduleTemplate
from felix_mlir.search import Candidate
from felix_mlir.target import parse_target
from felix_mlir.tasks import Task, TunableTask


@dataclass(frozen=True)
class ResolvedTable:
    """`candidates` has one entry per row of the table, None for a row that no template of `task` can express."""

    table: Table
    task: Task
    templates: tuple[ScheduleTemplate, ...]
    candidates: tuple[Candidate | None, ...]

    @property
    def tunable(self) -> TunableTask:
        assert self.task.tunable is not None
        return self.task.tunable


def resolve(table: Table, folder: Path) -> ResolvedTable:
    """Compile the op of a table in `folder` and read its rows as candidates.

    Sizes need not be legal by the constraints of this version, nor among the sizes its knobs offer: whoever measured
    them had reasons. Raises RequestError for an op that this version cannot tune, or of another target.
    """
    try:
        task = op_task(table.mlir, parse_target(table.target), folder)
    except WorkError as error:
        raise RequestError(f"the op of table {table.name} cannot be tuned here: {error}") from error
    tunable = task.tunable
    assert tunable is not None
    by_name = {template.name: template for template in tunable.templates}
    candidates = tuple(_candidate(row, by_name.get(row.template), tunable) for row in table.rows)
    used = {candidate.template for candidate in candidates if candidate is not None}
    return ResolvedTable(table, task, tuple(by_name[name] for name in sorted(used)), candidates)


def _candidate(row: Row, template: ScheduleTemplate | None, tunable: TunableTask) -> Candidate | None:
    if template is None:
        return None
    names = [knob.name for knob in template.knobs]
    values: Mapping[str, int] | None = row.knobs
    if values is None or set(values) != set(names):
        values = _values_of_levels(row, template, tunable)
    return None if values is None else Candidate(template.name, {name: values[name] for name in names})


def _values_of_levels(row: Row, template: ScheduleTemplate, tunable: TunableTask) -> Mapping[str, int] | None:
    """Read the knobs off the root op's levels; knobs that only other ops have keep the compiler's choice."""
    dispatch = tunable.dispatch
    loops = len(dispatch.root.extents)
    if any(len(sizes) != loops for sizes in row.levels.values()) or not set(row.levels) <= set(
        template.tiles[dispatch.root_index]
    ):
        return None
    ops = [row.levels if index == dispatch.root_index else given for index, given in enumerate(tunable.default.ops)]
    return template.sizes_of(Configuration(template.name, tuple(ops)))
