"""A tuning run from model to result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.apply import DEFAULT, Alternative, variants
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import Model, load_model
from felix_mlir.options import TuneOptions
from felix_mlir.report import Progress, Report
from felix_mlir.search import SEARCHERS
from felix_mlir.target import measurable_target, parse_target
from felix_mlir.tasks import Task
from felix_mlir.tuning.alternatives import AlternativeResult, Alternatives
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.contest import Contender, Contest, contender
from felix_mlir.tuning.decision import Choice
from felix_mlir.tuning.finish import Finish, Outcome
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.no_measure import UnmeasuredRun
from felix_mlir.tuning.request import RunRequest
from felix_mlir.tuning.results import make_report
from felix_mlir.tuning.session import failure, open_session
from felix_mlir.tuning.structures import StructureSearch
from felix_mlir.tuning.task_search import TaskSearch, is_worth_searching
from felix_mlir.tuning.workspace import State, Workspace, write_json
from felix_mlir.tuning.write import write_result

if TYPE_CHECKING:
    import torch
    from torch import nn

# Seconds the final choice takes for one task, its builds included.
_CHOICE_S_PER_TASK = 3.0
# An alternative that gains less is not worth leaving the default for.
_SMALLEST_GAIN = 1.02
# Structures were measured op by op when they are tried as a whole: of all alternatives they promise most.
_STRUCTURES_SHARE = 0.8
# So many structures are tuned beside the one that is fastest at the compiler's tile sizes.
_MOST_RIVALS = 2
# What there must be time for, or only one structure is tuned: builds of the model, of the other one and of a mix, and
# a round of each task of the first, of about so many seconds.
_RIVAL_BUILDS = 2
_TYPICAL_ROUND_S = 10.0
# Geometric mean of what tile sizes alone gained on six CPU ops (300 random candidates each) over the default.
_TYPICAL_GAIN = 1.5


def run_tuning(
    source: str | Path | nn.Module,
    options: TuneOptions,
    progress: Progress,
    example_inputs: tuple[torch.Tensor, ...] | None = None,
) -> Report:
    """Tune a model, or choose its schedules without measuring, and write all results to `options.out`.

    Raises RequestError for a request that cannot be served and WorkError when the work fails. After Ctrl-C or a
    kill, the same call goes on from what was measured.
    """
    target = measurable_target(options.target) if options.measure else parse_target(options.target)
    if options.search not in SEARCHERS:
        raise RequestError(f"unknown search '{options.search}': choose one of {', '.join(sorted(SEARCHERS))}")
    with Workspace(options.out) as workspace:
        name = str(source) if isinstance(source, str | Path) else type(source).__name__
        progress.stage(f"reading {name}")
        model = load_model(source, workspace.work / "model", example_inputs)
        identity = _content_hash(model)
        state = workspace.state
        if state.model and (state.model, state.target) != (identity, target.name):
            raise RequestError(
                f"{workspace.root} holds results of another model, {state.source} for {state.target}: "
                "choose another --out"
            )
        if options.measure and not _asks_for_more(options, state) and workspace.report.exists():
            progress.stage("an earlier run did all of this; nothing is measured again")
            return json.loads(workspace.report.read_text())
        budget = Budget(state, options.budget_s, options.trials)
        if target.note:
            progress.stage(target.note)
        with open_session(target, workspace, options.db or workspace.records, progress) as session:
            request = RunRequest(model, name, identity, options, workspace, session, budget)
            return _Run(request).tune() if options.measure else UnmeasuredRun(request).choose()


def _asks_for_more(options: TuneOptions, state: State) -> bool:
    """Whether a request has a limit beyond that of the last finished run in the folder."""
    budget_s = options.budget_s if options.budget_s is not None else float("inf")
    trials = options.trials if options.trials is not None else float("inf")
    return state.finished_budget is None or budget_s > state.finished_budget[0] or trials > state.finished_budget[1]


def _content_hash(model: Model) -> str:
    digest = hashlib.sha256()
    for path in (model.mlir, model.parameters):
        if path is not None:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


class _Run:
    """The stages of one run, in order."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._options = request.options
        self._workspace = request.workspace
        self._session = request.session
        self._budget = request.budget
        self._progress = self._session.progress
        self._stage = ModelStage(request.model, self._workspace, self._session)
        self._notes = request.first_notes()
        self._finish = Finish(self._stage, self._session, self._notes)

    def tune(self) -> Report:
        self._progress.stage("compiling the model as iree-compile does by default")
        default = self._stage.build_default()
        # Only a model that works takes the folder: a request that was wrong must not.
        self._request.claim_folder()
        structures = StructureSearch(self._stage, default, self._session, self._budget, self._notes)
        trials = Alternatives(self._stage, default, self._session, self._budget)
        alternatives = trials.try_all([DEFAULT, *structures.find()], _STRUCTURES_SHARE)
        structure = max(alternatives, key=lambda result: result.ratio or 0.0).alternative
        alternatives += trials.try_all(variants(structure)[1:])
        self._request.checkpoint()
        fastest, base = self._choose_base(alternatives, structures)
        reserve_s = partial(self._reserve_s, fastest)
        contest = Contest([base, *self._rivals(base, structures, reserve_s)])
        search = TaskSearch(self._request, contest, self._stage.default_latency_s, self._notes)
        search.run(reserve_s)
        choices = search.choose()
        build, tasks = self._settle(contest, choices, structures)
        tuned, choices = self._finish.build_tuned(build, tasks, choices)
        outcome = self._finish.compare(default, fastest, tuned, choices)
        return self._write(outcome, alternatives, structures, tasks, search)

    def _choose_base(
        self, alternatives: Sequence[AlternativeResult], structures: StructureSearch
    ) -> tuple[Contender, Contender]:
        """Return the fastest alternative, and the one whose dispatches are worth tuning.

        They differ where the fastest packs its operands and leaves little to tune: what counts for the second is
        its speed after tuning, with a typical gain on what is tunable.
        """
        self._progress.stage("finding the tasks and what each costs")
        ranked = sorted(alternatives, key=lambda result: -(result.ratio or 0.0))
        fastest = ranked[0]
        plain = next(result for result in ranked if not result.alternative.packs)
        if (fastest.ratio or 0.0) < _SMALLEST_GAIN:
            fastest = plain = alternatives[0]
        options = [
            self._contender(
                self._ready(result.alternative), self._stage.default_latency_s / (result.ratio or 1.0), structures
            )
            for result in dict.fromkeys((fastest, plain))
        ]
        return options[0], min(options, key=_forecast_s)

    def _contender(self, build: Build, latency_s: float, structures: StructureSearch) -> Contender:
        layout = structures.layout_of(build.alternative)
        return contender(self._stage, self._session.target, build, layout, latency_s, structures.roots)

    def _rivals(
        self, base: Contender, structures: StructureSearch, reserve_s: Callable[[int], float]
    ) -> list[Contender]:
        """Return contenders with the next best structures, as far as there is time to tune them too."""
        found: list[Contender] = []
        if not self._session.target.has_profiler or self._budget.exhausted:
            return found
        worth = sum(map(is_worth_searching, base.tasks))
        needed_s = reserve_s(worth) + _RIVAL_BUILDS * self._stage.build_seconds + _TYPICAL_ROUND_S * worth
        for alternative in structures.rivals(base.build.alternative)[:_MOST_RIVALS]:
            if self._budget.remaining_s < needed_s:
                break
            try:
                found.append(self._timed(alternative, structures))
            except WorkError as error:
                self._notes.append(f"a structure is not tried with other tile sizes: {error}")
        return found

    def _timed(self, alternative: Alternative, structures: StructureSearch) -> Contender:
        """Return a build of the model, timed and profiled; raises WorkError where it does not compile or fails."""
        build = self._ready(alternative)
        measurement = self._stage.run(build.vmfb)
        if measurement.latency_s is None:
            raise WorkError(failure(measurement))
        return self._contender(build, measurement.latency_s, structures)

    def _settle(
        self, contest: Contest, choices: Mapping[str, Choice], structures: StructureSearch
    ) -> tuple[Build, Sequence[Task]]:
        """Return the build that is expected to be the fastest with tuned sizes, and its tasks.

        It is the one in which every op has the structure that is fastest by itself, if the ops go well together.
        """
        ratios = {id_: 1.0 / choice.ratio for id_, choice in choices.items()}
        for each in contest.contenders:
            of_ops = {op: each.seconds(op, ratios) for op, tasks in each.op_seconds.items() if tasks.keys() & choices}
            structures.book_tuned(each.build.alternative, of_ops)
        winners = contest.winners(ratios)
        if not winners:
            return contest.contenders[0].build, contest.contenders[0].tasks
        mix = structures.mixed({op: each.build.alternative for op, each in winners.items()})
        builds = list(contest.contenders)
        if all(mix != each.build.alternative for each in builds):
            try:
                builds.append(self._timed(mix, structures))
            except WorkError as error:
                self._notes.append(f"a mix of the fastest structures is not used: {error}")
        best = min(builds, key=lambda each: each.tuned_s(ratios))
        return best.build, best.tasks

    def _ready(self, alternative: Alternative) -> Build:
        """Return a build of the model, made if there is none or an earlier run's files are gone."""
        build = self._stage.build_of(alternative)
        if not build.vmfb.exists():
            self._progress.stage(f"compiling the whole model as {alternative.name}")
            again, outcome = self._stage.build(alternative)
            if again is None:
                raise WorkError(f"compiling the model: {outcome.failure}")
        return build

    def _reserve_s(self, fastest: Contender, tasks: int) -> float:
        """Seconds to keep for what follows the search: choosing, building, and the final comparison."""
        # Builds were mostly timed two or more at a time; those to come run alone, at most about twice.
        after_s = self._stage.build_seconds + self._finish.compare_seconds(fastest.latency_s)
        return _CHOICE_S_PER_TASK * tasks + after_s

    def _write(
        self,
        outcome: Outcome,
        alternatives: Sequence[AlternativeResult],
        structures: StructureSearch,
        tasks: Sequence[Task],
        search: TaskSearch,
    ) -> Report:
        workspace = self._workspace
        if outcome.winner == "alternative" and any(choice.candidate for choice in outcome.choices.values()):
            self._notes.append(
                f"the model compiled as {outcome.build.alternative.name} was faster than the one with tuned tasks: "
                "tuned.vmfb is that, and the tuned schedules are not used"
            )
        if outcome.winner == "default":
            self._notes.append("nothing was faster than the compiler's default: tuned.vmfb is the default module")
        self._request.checkpoint()
        write_result(self._request, tasks, outcome, self._notes)
        report = make_report(
            self._request, self._stage.tolerance, outcome, alternatives,
            structures.structures(outcome.build.alternative), tasks,
            search.tuners, search.skipped, self._notes,
        )  # fmt: skip
        write_json(workspace.report, report)
        infinite = float("inf")
        workspace.state.finished_budget = (
            infinite if self._options.budget_s is None else self._options.budget_s,
            infinite if self._options.trials is None else self._options.trials,
        )
        workspace.save_state()
        return report


def _forecast_s(each: Contender) -> float:
    """Return what a run is expected to take when what is tunable has had a typical gain."""
    return each.tuned_s({task.id: 1 / _TYPICAL_GAIN for task in each.tasks if task.tunable is not None})
