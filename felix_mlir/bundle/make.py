"""Compiling candidates of a model's tasks into a bundle; nothing is measured here."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from felix_mlir.bundle import measuring, run_bundle
from felix_mlir.bundle.archive import check_output, describe_file, write_archive
from felix_mlir.bundle.format import BundleCandidate, BundleTask, Manifest
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.measure import worker
from felix_mlir.report import Progress
from felix_mlir.search import (
    Candidate,
    EvolutionarySearcher,
    Observation,
    Searcher,
    SearcherFactory,
    SearchProblem,
    UnsearchableError,
    gradient_searcher,
)
from felix_mlir.target import parse_target
from felix_mlir.tasks import Task, TunableTask
from felix_mlir.tuning.inspect import read_tasks
from felix_mlir.tuning.programs import TaskPrograms, repeats_of, search_problem, search_seed, task_tolerance
from felix_mlir.tuning.session import Session, open_session
from felix_mlir.tuning.workspace import Workspace

# No device is faster, so a launch takes at least its iterations over this. Repeating a slow dispatch too often costs
# time on the device, repeating a fast one too seldom would measure the call.
_ITERATIONS_PER_S = 1e12


@dataclass(frozen=True)
class MadeBundle:
    """`digest` is the bundle's hash, `candidates` how many each task has, `left_out` why a task has none."""

    digest: str
    candidates: Mapping[str, int]
    left_out: Mapping[str, str]


def make_bundle(
    source: str,
    target_name: str,
    candidates: int,
    seed: int,
    output: Path,
    progress: Progress,
    searcher: SearcherFactory = gradient_searcher,
) -> MadeBundle:
    """Compile `candidates` candidates of each task of a model, the default among them, and write them to `output`.

    They are what the searcher proposes before anything is measured. Raises RequestError for a request that cannot be
    served and for a model without a task that can be tuned, and WorkError.
    """
    target = parse_target(target_name)
    check_output(output)
    with (
        tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder,
        Workspace(Path(folder)) as workspace,
        open_session(target, workspace, workspace.records, progress) as session,
    ):
        if target.note:
            progress.stage(target.note)
        progress.stage(f"finding the tasks of {source}")
        tasks = read_tasks(source, target.name, workspace.work)
        left_out = {task.id: task.reason for task in tasks if task.tunable is None}
        sources: dict[str, Path] = {}
        made: list[BundleTask] = []
        for task in tasks:
            if task.tunable is None:
                continue
            progress.stage(f"compiling candidates of {task.kind} {task.id}")
            maker = _TaskMaker(task, task.tunable, session, workspace.work / "tasks" / task.id)
            try:
                made.append(maker.make(candidates, searcher, search_seed(seed, task.id)))
            except WorkError as error:
                left_out[task.id] = str(error)
                continue
            sources.update(maker.sources)
        for id_, reason in left_out.items():
            progress.stage(f"task {id_} is left out: {reason}")
        if not made:
            reasons = "; ".join(dict.fromkeys(left_out.values()))
            raise RequestError(f"{source} has nothing to tune for {target.name}: {reasons or 'it has no dispatch'}")
        progress.stage(f"writing {output}")
        sources = {**bundled_code(), **sources}
        files = {name: describe_file(path) for name, path in sources.items()}
        digest = write_archive(output, Manifest(source, target, tuple(made), left_out, files), sources)
    return MadeBundle(digest, {task.id: len(task.candidates) for task in made}, left_out)


def bundled_code() -> dict[str, Path]:
    """Return the files that measure, by their names in the bundle."""
    runner = Path(run_bundle.__file__)
    package = Path(measuring.__file__).parent
    inside = f"{run_bundle.CODE}/{run_bundle.MEASURING}"
    return {
        runner.name: runner,
        **{f"{inside}/{path.name}": path for path in sorted(package.glob("*.py"))},
        f"{inside}/worker.py": Path(worker.__file__),
    }


class _TaskMaker:
    """Compiles what a bundle has of one task; `sources` are the modules by their names in the bundle."""

    def __init__(self, task: Task, tunable: TunableTask, session: Session, folder: Path) -> None:
        self._task = task
        self._tunable = tunable
        self._session = session
        repeats = repeats_of(prod(task.iteration_space) / _ITERATIONS_PER_S)
        self._programs = TaskPrograms(task, session.target, repeats, folder)
        self.sources: dict[str, Path] = {}

    def make(self, count: int, factory: SearcherFactory, seed: int) -> BundleTask:
        """Compile the default and up to `count` - 1 other candidates; raises WorkError if the default fails."""
        job = self._programs.default
        (outcome,) = self._session.builder.build([job])
        if not outcome.ok:
            raise WorkError(f"building it alone: {outcome.failure}")
        problem = search_problem(self._task.id, self._tunable, self._session.cost_model)
        searcher = self._searcher(problem, factory, seed)
        # What a search begins with is the default, if a template can express it: it must not be compiled twice.
        own = next(iter(searcher.propose(len(problem.start))), None)
        default = BundleCandidate(own.template if own else None, dict(own.values) if own else {}, self._add(job.output))
        return BundleTask(
            id=self._task.id,
            kind=self._task.kind,
            iteration_space=self._task.iteration_space,
            element_types=self._task.element_types,
            count=self._task.count,
            inputs=self._tunable.inputs,
            tolerance=task_tolerance(self._tunable),
            repeats=self._programs.repeats,
            candidates=(default, *self._others(count - 1, searcher)),
        )

    def _searcher(self, problem: SearchProblem, factory: SearcherFactory, seed: int) -> Searcher:
        try:
            return factory(problem, seed)
        except UnsearchableError as error:
            self._session.progress.stage(f"task {self._task.id} is searched without a cost model: {error}")
            return EvolutionarySearcher(problem, seed)

    def _others(self, count: int, searcher: Searcher) -> list[BundleCandidate]:
        """Compile `count` candidates other than the default; fewer if there are no more, or nothing compiles."""
        built: list[BundleCandidate] = []
        while len(built) < count:
            proposed = searcher.propose(count - len(built))
            chosen = [c for c in proposed if self._programs.configuration(c) != self._tunable.default]
            jobs = [self._programs.job(candidate) for candidate in chosen]
            failed: list[Candidate] = []
            for candidate, job, outcome in zip(chosen, jobs, self._session.builder.build(jobs), strict=True):
                if outcome.ok:
                    name = self._add(job.output)
                    built.append(BundleCandidate(candidate.template, dict(candidate.values), name))
                else:
                    failed.append(candidate)
            searcher.observe([Observation(candidate, None) for candidate in failed])
            if failed:
                self._session.progress.stage(f"{len(failed)} candidates of {self._task.id} do not compile")
            if len(failed) == len(proposed):
                break
        return built

    def _add(self, module: Path) -> str:
        name = f"{self._task.id}/{module.name}"
        self.sources[name] = module
        return name
