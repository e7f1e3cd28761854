"""A tuning run from model to result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.apply import Alternative, build_model
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import Model, load_model
from felix_mlir.measure import Comparison, Measurement, Status, Verdict, compare
from felix_mlir.options import TuneOptions
from felix_mlir.report import Progress, Report, TaskRow
from felix_mlir.search import SEARCHERS, next_task
from felix_mlir.target import Target, parse_target
from felix_mlir.tasks import Task
from felix_mlir.tuning.alternatives import AlternativeResult, try_alternatives
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.results import Outcome, make_manifest, make_report
from felix_mlir.tuning.session import Session, open_session
from felix_mlir.tuning.task_tuner import Choice, TaskTuner
from felix_mlir.tuning.workspace import Workspace, write_json

if TYPE_CHECKING:
    import torch
    from torch import nn

_ROUND = 12
_FINAL_PAIRS = 21
_FINAL_S = 1.0
# Tasks that take less of the model's time cannot move it beyond the noise.
_SMALLEST_SHARE = 0.005
# Seconds the final choice takes for one task, its builds included.
_CHOICE_S_PER_TASK = 2.0
# An alternative that gains less is not worth leaving the default for.
_SMALLEST_GAIN = 1.02
# Geometric mean of what tile sizes alone gained on six CPU ops (300 random candidates each) over the default.
_TYPICAL_GAIN = 1.5
# In the model a tuned dispatch must not be slower than this part of its default.
_IN_MODEL_TOLERANCE = 1.02


def run_tuning(
    source: str | Path | nn.Module,
    options: TuneOptions,
    progress: Progress,
    example_inputs: tuple[torch.Tensor, ...] | None = None,
) -> Report:
    """Tune a model and write all results to `options.out`.

    Raises RequestError for a request that cannot be served and WorkError when the work fails. After Ctrl-C or a
    kill, the same call goes on from what was measured.
    """
    target = parse_target(options.target)
    if options.search not in SEARCHERS:
        raise RequestError(f"unknown search '{options.search}': choose one of {', '.join(sorted(SEARCHERS))}")
    with Workspace(options.out) as workspace:
        name = str(source) if isinstance(source, str | Path) else type(source).__name__
        state = workspace.state
        if state.source and (state.source, state.target) != (name, target.name):
            raise RequestError(
                f"{workspace.root} holds results of {state.source} for {state.target}: choose another --out"
            )
        budget = Budget(state, options.budget_s, options.trials)
        if state.finished and budget.exhausted and workspace.report.exists():
            progress.stage("everything the budget allows was measured in an earlier run; nothing is measured again")
            return json.loads(workspace.report.read_text())
        progress.stage(f"reading {name}")
        model = load_model(source, workspace.work / "model", example_inputs)
        with open_session(target, workspace, options.db or workspace.records, progress) as session:
            return _Run(model, name, options, workspace, session, budget).tune()


class _Run:
    """The stages of one run, in order."""

    def __init__(
        self,
        model: Model,
        source: str,
        options: TuneOptions,
        workspace: Workspace,
        session: Session,
        budget: Budget,
    ) -> None:
        self._model = model
        self._source = source
        self._options = options
        self._workspace = workspace
        self._session = session
        self._budget = budget
        self._progress = session.progress
        self._stage = ModelStage(model, workspace, session)
        self._notes: list[str] = []

    @property
    def _target(self) -> Target:
        return self._session.target

    def tune(self) -> Report:
        self._progress.stage("compiling the model as iree-compile does by default")
        default = self._stage.build_default()
        # Only a model that works takes the folder: a request that was wrong must not.
        state = self._workspace.state
        state.source, state.target, state.finished = self._source, self._target.name, False
        alternatives = try_alternatives(self._stage, default, self._session, self._budget)
        self._checkpoint()
        fastest, base, tasks = self._choose_base(alternatives)
        tuners = self._prepare(tasks)
        self._search(tuners)
        choices = self._choose(tuners)
        tuned, choices = self._build_tuned(base, tasks, choices)
        outcome = self._final(default, fastest, tuned, choices)
        return self._write(outcome, alternatives, tasks, tuners)

    def _choose_base(self, alternatives: Sequence[AlternativeResult]) -> tuple[Build, Build, list[Task]]:
        """Return the fastest alternative, and the one whose dispatches are worth tuning, with its tasks.

        They differ where the fastest packs its operands and leaves little to tune: what counts for the second is
        its speed after tuning, with a typical gain on what is tunable.
        """
        self._progress.stage("finding the tasks and what each costs")
        ranked = sorted(alternatives, key=lambda result: -(result.ratio or 0.0))
        fastest = ranked[0]
        plain = next(result for result in ranked if not result.alternative.packs)
        if (fastest.ratio or 0.0) < _SMALLEST_GAIN:
            fastest = plain = alternatives[0]
        options = [(result, self._ready(result.alternative)) for result in dict.fromkeys((fastest, plain))]
        forecasts: list[tuple[float, Build, list[Task]]] = []
        for result, build in options:
            tasks = self._stage.tasks(build)
            tunable = sum(task.share or 0.0 for task in tasks if task.tunable is not None)
            forecasts.append(((result.ratio or 1.0) / (1 - tunable * (1 - 1 / _TYPICAL_GAIN)), build, tasks))
        _, base, tasks = max(forecasts, key=lambda forecast: forecast[0])
        return options[0][1], base, tasks

    def _ready(self, alternative: Alternative) -> Build:
        """Return a build of the model that was timed before, made again if an earlier run's files are gone."""
        build = self._stage.build_of(alternative)
        if not build.vmfb.exists():
            self._progress.stage(f"compiling the whole model again: {alternative.name}")
            again, outcome = self._stage.build(alternative)
            if again is None:
                raise WorkError(f"compiling the model: {outcome.message} (reproduce: {' '.join(outcome.command)})")
        return build

    def _prepare(self, tasks: Sequence[Task]) -> list[TaskTuner]:
        """Time each task's isolated default; a task whose default fails alone keeps it, with a note."""
        tuners: list[TaskTuner] = []
        for task in sorted(tasks, key=lambda task: -(task.share or 0.0)):
            if task.tunable is None or (task.share or 0.0) < _SMALLEST_SHARE:
                continue
            cost_s = (task.share or 0.0) * self._stage.default_latency_s
            seed = self._options.seed + int(task.id[:8], 16)
            folder = self._workspace.work / "tasks" / task.id
            tuner = TaskTuner(task, cost_s, self._session, SEARCHERS[self._options.search], seed, folder)
            self._progress.stage(f"timing {task.kind} {task.id} by itself")
            try:
                tuner.prepare()
            except WorkError as error:
                self._notes.append(f"{task.kind} {task.id} keeps the compiler's default: {error}")
                continue
            tuners.append(tuner)
        self._count(tuners)
        return tuners

    def _count(self, tuners: Sequence[TaskTuner]) -> None:
        self._budget.set_trials(sum(sum(tuner.counts.values()) for tuner in tuners))

    def _search(self, tuners: Sequence[TaskTuner]) -> None:
        while tuners and not self._budget.exhausted and self._budget.remaining_s > self._reserve_s(len(tuners)):
            index = next_task([tuner.progress for tuner in tuners])
            if index is None:
                self._notes.append("the search stopped early: no task was improving any more")
                return
            limit = self._budget.remaining_trials
            tuners[index].run_round(_ROUND if limit is None else min(_ROUND, limit))
            self._count(tuners)
            self._checkpoint()
            self._progress.tasks(_rows(tuners, index), self._budget.remaining_s)

    def _reserve_s(self, tasks: int) -> float:
        """Seconds to keep for what follows the search: choosing, building, and the final comparison."""
        comparison_s = self._stage.interleave_seconds(3, _FINAL_S)
        return _CHOICE_S_PER_TASK * tasks + 2 * self._stage.build_seconds + comparison_s

    def _choose(self, tuners: Sequence[TaskTuner]) -> dict[str, Choice]:
        choices: dict[str, Choice] = {}
        for tuner in tuners:
            self._progress.stage(f"timing the finalists of {tuner.task.kind} {tuner.task.id} beside the default")
            choices[tuner.task.id] = tuner.choose()
            self._checkpoint()
        return choices

    def _build_tuned(
        self, base: Build, tasks: Sequence[Task], choices: dict[str, Choice]
    ) -> tuple[Build | None, dict[str, Choice]]:
        """Build the model with every chosen schedule, then drop those that are slower inside the model."""
        tuned = self._build_with(base, tasks, choices)
        if tuned is None:
            return None, choices
        before, after = self._stage.profile(base.vmfb), self._stage.profile(tuned.vmfb)
        slower = [
            task
            for task in tasks
            if task.id in choices
            and choices[task.id].candidate is not None
            and any(after.get(e, 0.0) > _IN_MODEL_TOLERANCE * before.get(e, float("inf")) for e in task.exports)
        ]
        if not slower:
            return tuned, choices
        kept = dict(choices)
        for task in slower:
            self._notes.append(f"{task.kind} {task.id}: faster alone but not inside the model, so it keeps the default")
            kept[task.id] = replace(choices[task.id], candidate=None, configuration=None)
        return self._build_with(base, tasks, kept), kept

    def _build_with(self, base: Build, tasks: Sequence[Task], choices: dict[str, Choice]) -> Build | None:
        configurations = {
            executable: configuration
            for task in tasks
            if task.id in choices and (configuration := choices[task.id].configuration) is not None
            for executable in task.executables
        }
        if not configurations:
            return None
        self._progress.stage("compiling the model with the tuned tasks")
        output = self._workspace.work / "tuned" / "model.vmfb"
        timeout_s = self._stage.timeout_s
        build = build_model(base.flow, base.alternative, self._target, configurations, output, timeout_s)
        if not build.outcome.ok:
            raise WorkError(
                f"compiling the tuned model: {build.outcome.message} (reproduce: {' '.join(build.outcome.command)})"
            )
        if build.not_landed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in build.not_landed.items())
            raise WorkError(f"compiling the tuned model: configurations did not land ({reasons})")
        return Build(base.alternative, base.flow, output)

    def _final(self, default: Build, fastest: Build, tuned: Build | None, choices: dict[str, Choice]) -> Outcome:
        """Compare default, alternative and tuned model in turn, and keep the fastest that is beyond the noise."""
        self._progress.stage("comparing the result with the default")
        builds = {"default": default}
        if fastest.vmfb != default.vmfb:
            builds["alternative"] = fastest
        if tuned is not None:
            builds["tuned"] = tuned
        measured = dict(
            zip(builds, self._stage.interleave([b.vmfb for b in builds.values()], _FINAL_PAIRS, _FINAL_S), strict=True)
        )
        if measured["default"].status is not Status.OK:
            raise WorkError(f"the default model failed in the final comparison: {measured['default'].message}")
        winner = "default"
        for name in ("alternative", "tuned"):
            if name not in measured:
                continue
            if measured[name].status is not Status.OK:
                self._notes.append(f"the {name} model is not used: {measured[name].message}")
            elif _comparison(measured[winner], measured[name]).verdict is Verdict.FASTER:
                winner = name
        return Outcome(winner, builds[winner], measured, choices)

    def _write(
        self,
        outcome: Outcome,
        alternatives: Sequence[AlternativeResult],
        tasks: Sequence[Task],
        tuners: Sequence[TaskTuner],
    ) -> Report:
        workspace = self._workspace
        shutil.copyfile(outcome.build.vmfb, workspace.tuned)
        if self._model.parameters is not None and not self._model.embed_parameters:
            shutil.copyfile(self._model.parameters, workspace.parameters)
            self._notes.append(
                f"the weights are outside: run it as iree-run-module --module={workspace.tuned} "
                f"--parameters=model={workspace.parameters}"
            )
        if outcome.winner == "alternative" and any(choice.candidate for choice in outcome.choices.values()):
            self._notes.append(
                f"the model compiled as {outcome.build.alternative.name} was faster than the one with tuned tasks: "
                "tuned.vmfb is that, and the tuned schedules are not used"
            )
        if outcome.winner == "default":
            self._notes.append("nothing was faster than the compiler's default: tuned.vmfb is the default module")
        self._checkpoint()
        manifest = make_manifest(self._source, self._options, self._session, outcome)
        write_json(workspace.manifest, manifest)
        report = make_report(
            self._source, self._options, workspace, self._stage.tolerance, outcome, alternatives, tasks,
            {tuner.task.id: tuner for tuner in tuners}, self._notes,
        )  # fmt: skip
        write_json(workspace.report, report)
        workspace.state.finished = True
        workspace.save_state()
        return report

    def _checkpoint(self) -> None:
        self._budget.tick()
        self._workspace.save_state()


def _comparison(first: Measurement, second: Measurement) -> Comparison:
    return compare(first.samples, second.samples)


def _rows(tuners: Sequence[TaskTuner], active: int) -> list[TaskRow]:
    return [
        TaskRow(
            tuner.task.id,
            tuner.task.kind,
            tuner.task.share or 0.0,
            sum(tuner.counts.values()),
            1.0 / tuner.best_ratio,
            index == active,
        )
        for index, tuner in enumerate(tuners)
    ]
