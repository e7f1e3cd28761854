"""Searching the tasks of a model: rounds of candidates where they promise most, and a decision for each task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from felix_mlir.errors import WorkError
from felix_mlir.report import TaskRow
from felix_mlir.search import SEARCHERS, EvolutionarySearcher, Searcher, SearchProblem, UnsearchableError, next_task
from felix_mlir.tasks import Task
from felix_mlir.tuning.contest import Contest
from felix_mlir.tuning.decision import Choice
from felix_mlir.tuning.programs import search_seed
from felix_mlir.tuning.request import RunRequest
from felix_mlir.tuning.task_tuner import TaskTuner

# Candidates of a round: so many, or as few as about so many seconds are enough for.
_ROUND = 16
_ROUND_S = 20.0
_SMALLEST_ROUND = 4
# Tasks that take less of the model's time cannot move it beyond the noise.
_SMALLEST_SHARE = 0.005


def is_worth_searching(task: Task) -> bool:
    """Whether other tile sizes of a task can make the model faster."""
    return task.tunable is not None and (task.share or 0.0) >= _SMALLEST_SHARE


class TaskSearch:
    """Searches the tasks of a contest whose model takes `model_s` by default.

    `tuners` are those worth searching, by task; a task left out keeps the default, `skipped` has the reason.
    """

    def __init__(self, request: RunRequest, contest: Contest, model_s: float, notes: list[str]) -> None:
        self._request = request
        self._contest = contest
        self._budget = request.budget
        self._progress = request.session.progress
        self._notes = notes
        self.tuners: dict[str, TaskTuner] = {}
        self.skipped: dict[str, str] = {}
        for task in contest.tasks:
            if task.tunable is None:
                continue
            if not is_worth_searching(task):
                self.skipped[task.id] = f"its share of the run time is below {_SMALLEST_SHARE:.1%}"
                continue
            folder = request.workspace.work / "tasks" / task.id
            seed = search_seed(request.options.seed, task.id)
            self.tuners[task.id] = TaskTuner(task, model_s, request.session, self._searcher, seed, folder)
            self.skipped[task.id] = "the budget did not reach it"
        self._count()

    def run(self, reserve_s: Callable[[int], float]) -> None:
        """Search until the budget is used up, but for what choosing among so many tasks and the rest of the run take,
        or nothing improves any more.
        """
        while self.tuners and not self._budget.exhausted:
            begun = sum(1 for tuner in self.tuners.values() if tuner.counts)
            spare_s = self._budget.remaining_s - reserve_s(begun + 1)
            if spare_s <= 0:
                return
            running = self._in_play()
            index = next_task([tuner.progress for tuner in running])
            if index is None:
                self._notes.append("the search stopped early: no task was improving any more")
                return
            tuner = running[index]
            if not tuner.is_prepared:
                # Now it is known how long a candidate takes: another task may promise more for its time.
                self._prepare(tuner)
                continue
            candidate_s = tuner.progress.candidate_s
            count = max(_SMALLEST_ROUND, min(_ROUND, int(_ROUND_S / candidate_s)))
            # The last round is as short as what is left for it.
            count = max(1, int(min(count, spare_s / candidate_s)))
            limit = self._budget.remaining_trials
            tuner.run_round(count if limit is None else min(count, limit))
            self._count()
            self._request.checkpoint()
            self._progress.tasks(_rows(running, tuner), self._budget.remaining_s)

    def choose(self) -> dict[str, Choice]:
        """Decide the tasks of which candidates were measured, in this run or before, if they can still win."""
        choices: dict[str, Choice] = {}
        for tuner in self._in_play():
            if tuner.counts and not tuner.is_prepared:
                self._prepare(tuner)
            if tuner.counts and tuner.is_prepared:
                self._progress.stage(f"timing the finalists of {tuner.task.kind} {tuner.task.id} beside the default")
                choices[tuner.task.id] = tuner.choose()
                self._request.checkpoint()
        return choices

    def _in_play(self) -> list[TaskTuner]:
        in_play = self._contest.in_play({id_: tuner.progress for id_, tuner in self.tuners.items()})
        return [tuner for id_, tuner in self.tuners.items() if id_ in in_play]

    def _prepare(self, tuner: TaskTuner) -> None:
        """Time a task's default alone; one that fails is not searched."""
        self._progress.stage(f"timing {tuner.task.kind} {tuner.task.id} by itself")
        try:
            tuner.prepare()
        except WorkError as error:
            self.skipped[tuner.task.id] = f"its default fails alone: {error}"
            del self.tuners[tuner.task.id]

    def _searcher(self, problem: SearchProblem, seed: int) -> Searcher:
        try:
            return SEARCHERS[self._request.options.search](problem, seed)
        except UnsearchableError as error:
            reason = " ".join(str(error).split())
            self._notes.append(f"task {problem.task} is searched without a cost model: {reason}")
            return EvolutionarySearcher(problem, seed)

    def _count(self) -> None:
        self._budget.set_trials(sum(sum(tuner.counts.values()) for tuner in self.tuners.values()))


def _rows(tuners: Sequence[TaskTuner], active: TaskTuner) -> list[TaskRow]:
    return [
        TaskRow(
            tuner.task.id,
            tuner.task.kind,
            tuner.task.share or 0.0,
            sum(tuner.counts.values()),
            1.0 / tuner.best_ratio,
            tuner is active,
        )
        for tuner in tuners
        if tuner.is_prepared
    ]
