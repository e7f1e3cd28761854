"""The end of a run: the model with its tuned tasks, what of it holds up, and which build is kept."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from felix_mlir.apply import build_model
from felix_mlir.errors import WorkError
from felix_mlir.measure import Measurement, Status, Verdict, compare
from felix_mlir.tasks import Task
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.session import Session, failure
from felix_mlir.tuning.task_tuner import Choice

_PAIRS = 21
FINAL_S = 1.0
# In the model a tuned dispatch must not be slower than this part of its default.
_IN_MODEL_TOLERANCE = 1.02


@dataclass(frozen=True)
class Outcome:
    """The build that won the final comparison, every build's interleaved samples, and what each task ended with.

    The schedules of `choices` are in the winner only if that is "tuned".
    """

    winner: str
    build: Build
    measured: Mapping[str, Measurement]
    choices: Mapping[str, Choice]


class Finish:
    """Whatever is wrong with a tuned build drops that build, or the schedules at fault, with a line in `notes`."""

    def __init__(self, stage: ModelStage, session: Session, notes: list[str]) -> None:
        self._stage = stage
        self._session = session
        self._notes = notes

    def build_tuned(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, Choice]
    ) -> tuple[Build | None, dict[str, Choice]]:
        """Build the model with every chosen schedule, then without those that did not land or are slower in it."""
        kept = dict(choices)
        tuned, lost = self._build_with(base, tasks, kept)
        if lost:
            self._drop(kept, lost)
            tuned, _ = self._build_with(base, tasks, kept)
        if tuned is None:
            return None, kept
        before, after = self._stage.profile(base.vmfb), self._stage.profile(tuned.vmfb)
        slower = {
            task.id: "it was faster alone but not inside the model"
            for task in tasks
            if task.id in kept
            and kept[task.id].candidate is not None
            and after.launch_s(task.exports) > _IN_MODEL_TOLERANCE * before.launch_s(task.exports)
        }
        if not slower:
            return tuned, kept
        self._drop(kept, slower)
        return self._build_with(base, tasks, kept)[0], kept

    def compare(self, default: Build, fastest: Build, tuned: Build | None, choices: Mapping[str, Choice]) -> Outcome:
        """Time default, fastest alternative and tuned model in turn; keep the fastest beyond the noise.

        Raises WorkError when the default, which ran before, fails alone.
        """
        self._session.progress.stage("comparing the result with the default")
        builds = {"default": default}
        if fastest.vmfb != default.vmfb:
            builds["alternative"] = fastest
        if tuned is not None:
            builds["tuned"] = tuned
        while True:
            measurements = self._stage.interleave([b.vmfb for b in builds.values()], _PAIRS, FINAL_S)
            measured = dict(zip(builds, measurements, strict=True))
            if measured["default"].status is Status.OK:
                break
            # A crash or hang ends all programs of the comparison: the build added last is the likeliest cause.
            name, _ = builds.popitem()
            problem = failure(measured["default"])
            if name == "default":
                raise WorkError(f"the default model failed in the final comparison: {problem}")
            self._notes.append(f"the {name} model is not used, the comparison with it failed: {problem}")
        winner = "default"
        for name in builds.keys() - {"default"}:
            if measured[name].status is not Status.OK:
                self._notes.append(f"the {name} model is not used: {failure(measured[name])}")
        for name in ("alternative", "tuned"):
            if name in measured and measured[name].status is Status.OK:
                comparison = compare(measured[winner].samples, measured[name].samples)
                winner = name if comparison.verdict is Verdict.FASTER else winner
        return Outcome(winner, builds[winner], measured, choices)

    def _drop(self, choices: dict[str, Choice], reasons: Mapping[str, str]) -> None:
        for id_, reason in reasons.items():
            choices[id_] = replace(choices[id_], candidate=None, configuration=None, reason=reason)
            self._notes.append(f"task {id_} keeps the compiler's default: {reason}")

    def _build_with(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, Choice]
    ) -> tuple[Build | None, dict[str, str]]:
        """Build and run the model with the chosen schedules; also returns, by task, why any did not land."""
        owners = {executable: task.id for task in tasks for executable in task.executables}
        configurations = {
            executable: configuration
            for executable, id_ in owners.items()
            if id_ in choices and (configuration := choices[id_].configuration) is not None
        }
        if not configurations:
            return None, {}
        self._session.progress.stage("compiling the model with the tuned tasks")
        output = self._stage.build_of(base.alternative).vmfb.with_name("tuned.vmfb")
        build = build_model(
            base.flow, base.alternative, self._session.target, configurations, output, self._stage.timeout_s
        )
        if not build.outcome.ok:
            command = shlex.join(build.outcome.command)
            self._notes.append(
                f"the model with tuned tasks is not used, it does not compile: {build.outcome.message} "
                f"(reproduce: {command})"
            )
            return None, {}
        if build.not_landed:
            return None, {owners[name]: f"its schedule did not land: {why}" for name, why in build.not_landed.items()}
        measurement = self._stage.run(output)
        if measurement.status is not Status.OK:
            self._notes.append(f"the model with tuned tasks is not used: {failure(measurement)}")
            return None, {}
        return Build(base.alternative, base.flow, output), {}
