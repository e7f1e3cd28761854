"""A run that measures nothing: from model to result by what is known, predicted and checked in compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod

from felix_mlir.apply import DEFAULT
from felix_mlir.errors import WorkError
from felix_mlir.gpu import KernelFigures
from felix_mlir.report import KernelReport, Report, TaskReport, UnmeasuredReport
from felix_mlir.search import SEARCHERS, UnsearchableError
from felix_mlir.tasks import Task
from felix_mlir.tasks.extract import group_executables
from felix_mlir.tuning.chooser import TaskChooser, UnmeasuredChoice
from felix_mlir.tuning.finish import Finish, Result
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.programs import search_seed
from felix_mlir.tuning.request import RunRequest
from felix_mlir.tuning.results import make_unmeasured_report, task_report
from felix_mlir.tuning.static_check import StaticChecker
from felix_mlir.tuning.structures import OpStructure, predicted_structure
from felix_mlir.tuning.workspace import write_json
from felix_mlir.tuning.write import write_result

# Candidates to propose when the request does not say.
_TRIALS = 64


class UnmeasuredRun:
    """The stages of such a run, in order. Flags that compile the whole model another way are not considered."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._options = request.options
        self._workspace = request.workspace
        self._session = request.session
        self._budget = request.budget
        self._checker = StaticChecker(self._session.target, self._session.builder)
        self._stage = ModelStage(request.model, self._workspace, self._session)
        self._notes = [*request.first_notes(), *self._checker.notes]
        self._skipped: dict[str, str] = {}
        self._structures: list[OpStructure] = []

    def choose(self) -> Report:
        """Choose, compile and write everything; raises RequestError and WorkError."""
        self._session.progress.stage("compiling the model as iree-compile does by default")
        base = self._stage.compile_default()
        self._request.claim_folder()
        base = self._restructured(base)
        self._session.progress.stage("finding the tasks")
        tasks = self._stage.extract(base)
        choosers = self._prepare(tasks)
        choices = self._choose(choosers)
        tuned, choices = self._compile(base, tasks, choices)
        kept = "default" if base.alternative is DEFAULT else "alternative"
        result = Result("tuned" if tuned else kept, tuned or base, choices)
        if tuned is None:
            self._notes.append(f"no task has another schedule than the compiler's: tuned.vmfb is the {kept} module")
        return self._write(result, choices, tasks, choosers)

    def _restructured(self, default: Build) -> Build:
        """Return the model in the structure estimated to be the fastest, the default where that does not compile."""
        session = self._session
        if any(session.history(id_) for id_ in group_executables(default.flow, session.target)):
            self._notes.append("the model keeps its structure: the records are of its tasks as it is")
            return default
        session.progress.stage("choosing the structure of the model's ops")
        alternative, structures = predicted_structure(self._stage, session.target)
        restructured: Build | None = default
        if alternative is not DEFAULT:
            restructured, outcome = self._stage.build(alternative)
            if restructured is None:
                failed = f"{alternative.name} does not compile: {outcome.failure}"
                self._notes.append(f"the model keeps its structure, {failed}")
                return default
        self._structures = structures
        return restructured

    def _prepare(self, tasks: Sequence[Task]) -> list[TaskChooser]:
        """Get a chooser ready for each task; one that is left out keeps the default, with a reason."""
        from felix_mlir.cost import NO_FEATURES

        choosers: list[TaskChooser] = []
        for task in tasks:
            if task.tunable is None:
                continue
            self._session.progress.stage(f"looking at {task.kind} {task.id}")
            seed = search_seed(self._options.seed, task.id)
            folder = self._workspace.work / "tasks" / task.id
            factory = SEARCHERS[self._options.search]
            try:
                choosers.append(TaskChooser(task, self._session, self._checker, factory, seed, folder))
            except (UnsearchableError, *NO_FEATURES) as error:
                self._skipped[task.id] = f"the cost model cannot judge it: {error}"
        return choosers

    def _choose(self, choosers: Sequence[TaskChooser]) -> dict[str, UnmeasuredChoice]:
        trials = _TRIALS if self._options.trials is None else self._options.trials
        unknown = [chooser for chooser in choosers if not chooser.is_measured]
        for chooser in choosers if unknown else ():
            if chooser.is_measured:
                chooser.teach()
        shares = dict(zip((c.task.id for c in unknown), divided(trials, [c.cost_s for c in unknown]), strict=True))
        choices: dict[str, UnmeasuredChoice] = {}
        for chooser in choosers:
            task = chooser.task
            if self._budget.remaining_s <= 0:
                self._skipped[task.id] = "the budget did not reach it"
                continue
            self._session.progress.stage(f"choosing a schedule of {task.kind} {task.id}")
            try:
                choice = chooser.choose(shares.get(task.id, 0))
            except WorkError as error:
                self._skipped[task.id] = f"its default fails alone: {error}"
                continue
            choices[task.id] = choice
            if choice.candidate is not None and choice.default_s is None:
                self._notes.append(
                    f"task {task.id}: no template has the compiler's own schedule, so nothing was predicted of that"
                )
        return choices

    def _compile(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, UnmeasuredChoice]
    ) -> tuple[Build | None, dict[str, UnmeasuredChoice]]:
        """Build the model with what was chosen, without what is not in its IR or in its code in the end."""
        finish = Finish(self._stage, self._session, self._notes)
        tuned, kept = finish.compile_tuned(base, tasks, choices)
        if tuned is None:
            return None, kept
        lost = self._checker.lost_in(tuned.vmfb, tasks, {task.id: task for task in tuned.tuned.tasks})
        if not lost:
            return tuned, kept
        finish.drop(kept, lost)
        return finish.compile_tuned(base, tasks, kept)

    def _write(
        self,
        result: Result,
        choices: Mapping[str, UnmeasuredChoice],
        tasks: Sequence[Task],
        choosers: Sequence[TaskChooser],
    ) -> Report:
        workspace = self._workspace
        self._budget.tick()
        write_result(self._request, tasks, result, self._notes)
        by_task = {chooser.task.id: chooser for chooser in choosers}
        rows = [
            _row(task, by_task.get(task.id), choices.get(task.id), self._skipped.get(task.id, task.reason))
            for task in tasks
        ]
        proposed, search_s = sum(c.proposed for c in choosers), sum(c.search_s for c in choosers)
        report = make_unmeasured_report(self._request, result, self._structures, rows, proposed, search_s, self._notes)
        write_json(workspace.report, report)
        workspace.save_state()
        return report


def divided(total: int, weights: Sequence[float | None]) -> list[int]:
    """Divide a number of candidates by weight, to the last; an unknown weight counts as the average of the others."""
    known = [weight for weight in weights if weight is not None]
    average = sum(known) / len(known) if known else 1.0
    ends = [0.0, *accumulate(average if weight is None else weight for weight in weights)]
    bounds = [round(total * end / (ends[-1] or 1.0)) for end in ends]
    return [high - low for low, high in pairwise(bounds)]


def _row(task: Task, chooser: TaskChooser | None, choice: UnmeasuredChoice | None, skipped: str) -> TaskReport:
    row = task_report(task, choice, chooser.counts if chooser else {}, skipped)
    row["unmeasured"] = _unmeasured(choice) if choice else None
    return row


def _unmeasured(choice: UnmeasuredChoice) -> UnmeasuredReport:
    return UnmeasuredReport(
        basis=choice.basis,
        default_us=None if choice.default_s is None else 1e6 * choice.default_s,
        chosen_us=None if choice.chosen_s is None else 1e6 * choice.chosen_s,
        default_kernel=_kernel(choice.default_kernel),
        chosen_kernel=_kernel(choice.chosen_kernel),
    )


def _kernel(figures: KernelFigures | None) -> KernelReport | None:
    if figures is None:
        return None
    made = figures.assembled
    return KernelReport(
        threads=prod(figures.threads),
        shared_bytes=figures.shared_bytes,
        registers=made.registers if made else None,
        spilled_bytes=made.spill_store_bytes if made else None,
        occupancy=figures.occupancy,
    )
