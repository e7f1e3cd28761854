"""Measuring candidates of the suite's ops: one table each, resumed where it was left."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from pathlib import Path

import numpy as np
from typing_extensions import override

from felix_mlir.dataset.op_task import op_task
from felix_mlir.dataset.suite import SUITES
from felix_mlir.dataset.table import Row, Table, write_table
from felix_mlir.errors import RequestError
from felix_mlir.features import read_host
from felix_mlir.measure.status import Status
from felix_mlir.records import Record
from felix_mlir.report.progress import Progress
from felix_mlir.schedule import ScheduleTemplate
from felix_mlir.search import Candidate, Observation, Searcher, SearcherFactory, find_searcher
from felix_mlir.target import measurable_target
from felix_mlir.tasks import Task
from felix_mlir.tuning.session import Session, open_session
from felix_mlir.tuning.task_tuner import TaskTuner
from felix_mlir.tuning.workspace import Workspace

_ROUND = 32
# The fastest of hundreds of noisy timings is fast by luck, too: so many are timed once more.
_CONFIRMED = 24


def select_ops(suite: str, patterns: Sequence[str]) -> dict[str, str]:
    """Return the ops of a suite that match any of the shell patterns; raises RequestError for one without a match."""
    if suite not in SUITES:
        raise RequestError(f"there is no suite {suite}; there are {', '.join(SUITES)}")
    ops = SUITES[suite]
    unmatched = [pattern for pattern in patterns if not fnmatch.filter(ops, pattern)]
    if unmatched:
        raise RequestError(f"the suite {suite} has no op {unmatched[0]}; it has {', '.join(ops)}")
    return {name: mlir for name, mlir in ops.items() if any(fnmatch.fnmatch(name, p) for p in patterns)}


def collect(
    ops: Mapping[str, str],
    folder: Path,
    *,
    points: int,
    search: str,
    lattice: bool,
    seed: int,
    progress: Progress,
    target_name: str = "cpu",
) -> list[Path]:
    """Measure `points` candidates of each op (name to MLIR) and write `folder`/NAME.jsonl; returns the tables.

    `search` names the searcher that chooses them; with `lattice` they are all legal points of a lattice around the
    compiler's choice that has about `points`. Everything is on disk at once, and a second call goes on from there.
    The machine must do nothing else. Raises WorkError when an op's default does not run.
    """
    chosen = find_searcher(search)
    factory = EnumeratingSearcher if lattice else chosen
    target = measurable_target(target_name)
    written: list[Path] = []
    with Workspace(folder) as workspace, open_session(target, workspace, workspace.records, progress) as session:
        for number, (name, mlir) in enumerate(ops.items(), start=1):
            place = workspace.work / "ops" / name
            progress.stage(f"{name} ({number} of {len(ops)})")
            task = op_task(mlir, target, place)
            wanted = points
            if lattice:
                task, wanted = _on_lattice(task, points)
            tuner = _tuner(task, session, factory, seed, place)
            done = -1
            while done < (done := sum(tuner.counts.values())) < wanted:
                tuner.run_round(min(_ROUND, wanted - done))
                progress.stage(f"{name}: {sum(tuner.counts.values())} candidates")
            tuner.confirm(min(_CONFIRMED, points // 6))
            path = workspace.root / f"{name}.jsonl"
            write_table(_table(name, mlir, task, tuner, session, lattice), path)
            written.append(path)
    return written


def _tuner(task: Task, session: Session, searcher: SearcherFactory, seed: int, place: Path) -> TaskTuner:
    """Return a tuner of the op, ready to measure; its default is timed twice, first to know how long a launch is."""

    def ready(launch_s: float | None) -> TaskTuner:
        timed = replace(task, launch_s=launch_s)
        tuner = TaskTuner(timed, 0.0, session, searcher, seed, place / "tasks" / task.id)
        tuner.prepare()
        return tuner

    return ready(ready(None).reference_s)


class EnumeratingSearcher(Searcher):
    """Proposes every legal candidate of templates with few sizes per knob, in random order."""

    @override
    def suggestions(self, count: int) -> Iterator[Candidate | None]:
        for name, space in sorted(self.spaces.items()):
            for point in self.rng.permutation(legal_points(space.template)):
                candidate = Candidate(name, space.values(point))
                if not self.is_known(candidate):
                    yield candidate
        while True:
            yield None

    @override
    def learn(self, observations: Sequence[Observation]) -> None:
        pass


def _on_lattice(task: Task, points: int) -> tuple[Task, int]:
    """Return the task with a lattice of about `points` points per template in its place, and how many there are."""
    tunable = task.tunable
    assert tunable is not None
    templates = tuple(lattice_of(t, t.values_of(tunable.default), points) for t in tunable.templates)
    total = sum(len(legal_points(template)) for template in templates)
    return replace(task, tunable=replace(tunable, templates=templates)), total


def lattice_of(template: ScheduleTemplate, default: Mapping[str, int] | None, points: int) -> ScheduleTemplate:
    """Return the template with fewer sizes per knob: those nearest the default's, until `points` points are legal.

    Sizes are taken in turn, knob by knob, at least a factor of 1.4 apart. Without a default (it lies outside the
    template) the lattice grows from the middle sizes.
    """
    start = default or {knob.name: knob.options[len(knob.options) // 2] for knob in template.knobs}
    order = {knob.name: _spread_out(knob.options, start[knob.name]) for knob in template.knobs}
    taken = {knob.name: 1 for knob in template.knobs}
    chosen = _reduced(template, order, taken)
    for name in itertools.cycle(order):
        if legal_points(chosen).shape[0] >= points or all(taken[n] == len(order[n]) for n in order):
            return chosen
        taken[name] = min(taken[name] + 1, len(order[name]))
        chosen = _reduced(template, order, taken)
    return chosen


def _spread_out(options: Sequence[int], start: int) -> list[int]:
    """Sizes by how far they are from `start` in ratio, leaving out those close to one already there."""
    order: list[int] = []
    for size in sorted(options, key=lambda size: (abs(np.log(size / start)), size)):
        if all(abs(np.log(size / other)) > np.log(1.4) for other in order):
            order.append(size)
    return order


def _reduced(
    template: ScheduleTemplate, order: Mapping[str, Sequence[int]], taken: Mapping[str, int]
) -> ScheduleTemplate:
    knobs = (replace(knob, options=tuple(sorted(order[knob.name][: taken[knob.name]]))) for knob in template.knobs)
    return replace(template, knobs=tuple(knobs))


def legal_points(template: ScheduleTemplate) -> np.ndarray:
    """Every legal point of a template with few sizes per knob: [n, knobs] integers."""
    grid = np.array(list(itertools.product(*(knob.options for knob in template.knobs))), dtype=np.int64)
    return grid[template.satisfied(grid).all(axis=1)]


def _table(name: str, mlir: str, task: Task, tuner: TaskTuner, session: Session, lattice: bool) -> Table:
    tunable = task.tunable
    assert tunable is not None
    root = tunable.dispatch.root
    templates = {template.name: template for template in tunable.templates}
    records = [record for record in session.history(task.id) if record.template in templates]
    rows = tuple(_row(record, templates[record.template], tuner.reference_s) for record in _latest(records))
    return Table(
        name=name, mlir=mlir, target=session.target.name, cpu="host", cores=session.target.cores,
        compiler=f"iree-base-compiler {session.compiler}", kind="lattice" if lattice else "sample",
        iteration_space=root.extents, flops=2 * prod(root.extents),
        default_levels=dict(tunable.default.ops[tunable.dispatch.root_index]), default_s=tuner.reference_s, rows=rows,
        lattice={knob.name: knob.options for t in tunable.templates for knob in t.knobs} if lattice else None,
        host=session.host, machine=asdict(read_host()),
    )  # fmt: skip


def _latest(records: Iterable[Record]) -> list[Record]:
    """One record per candidate, in the order they were first tried; a later timing replaces an earlier one."""
    return list({Candidate(record.template, record.knobs).key: record for record in records}.values())


def _row(record: Record, template: ScheduleTemplate, reference_s: float) -> Row:
    levels = template.configuration(record.knobs).ops[template.dispatch.root_index]
    latency_s = record.latency_beside(reference_s) if record.status is Status.OK else None
    return Row(record.template, levels, record.status, latency_s, record.message, record.knobs)
