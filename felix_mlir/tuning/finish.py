"""The end of a run: the model with its tuned tasks, what of it holds up, and which build is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from felix_mlir.apply import build_model, tuned_task
from felix_mlir.errors import WorkError
from felix_mlir.measure import Measurement, Status, Verdict, compare
from felix_mlir.tasks import Task
from felix_mlir.tuning.contest import Contender
from felix_mlir.tuning.decision import Choice, Decision
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.session import Session, failure

_PAIRS = 21
_SECONDS = 1.0
# In the model a tuned dispatch must not be slower than this part of its default.
_IN_MODEL_TOLERANCE = 1.02

AnyChoice = TypeVar("AnyChoice", bound=Decision)


@dataclass(frozen=True)
class Result:
    """The build that is kept ("default", "alternative" or "tuned"), and what each task ended with.

    The schedules of `choices` are in it only if it is "tuned".
    """

    winner: str
    build: Build
    choices: Mapping[str, Decision]


@dataclass(frozen=True)
class Outcome(Result):
    """The result of the final comparison: `measured` has every build's interleaved samples."""

    choices: Mapping[str, Choice]
    measured: Mapping[str, Measurement]


class Finish:
    """Whatever is wrong with a tuned build drops that build, or the schedules at fault, with a line in `notes`."""

    def __init__(self, stage: ModelStage, session: Session, notes: list[str]) -> None:
        self._stage = stage
        self._session = session
        self._notes = notes

    def build_tuned(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, Choice]
    ) -> tuple[Build | None, dict[str, Choice]]:
        """Build the model with every chosen schedule, then without those that did not land or are slower in it.

        Without a profiler only the model as a whole is compared, later.
        """
        kept = dict(choices)
        tuned, lost = self._build_with(base, tasks, kept)
        if lost:
            self.drop(kept, lost)
            tuned, _ = self._build_with(base, tasks, kept)
        if tuned is None or not self._session.target.has_profiler:
            return tuned, kept
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
        self.drop(kept, slower)
        return self._build_with(base, tasks, kept)[0], kept

    def compare(
        self, default: Build, fastest: Contender, tuned: Build | None, choices: Mapping[str, Choice]
    ) -> Outcome:
        """Time default, fastest alternative and tuned model in turn; keep the fastest beyond the noise.

        Raises WorkError when the default, which ran before, fails alone.
        """
        self._session.progress.stage("comparing the result with the default")
        builds = {"default": default}
        if fastest.build.vmfb != default.vmfb:
            builds["alternative"] = fastest.build
        if tuned is not None:
            builds["tuned"] = tuned
            if "alternative" in builds and self._stage.is_slow:
                del builds[self._slower(fastest, tuned)]
        while True:
            measurements = self._stage.interleave([b.vmfb for b in builds.values()], _PAIRS, _SECONDS)
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
        return Outcome(winner, builds[winner], choices, measured)

    def compare_seconds(self, fastest_s: float) -> float:
        """Return about how long `compare` takes if a run of the fastest alternative takes `fastest_s`."""
        default_s = self._stage.default_latency_s
        if not self._stage.is_slow:
            return self._seconds_of(default_s, fastest_s, fastest_s)
        between_s = self._seconds_of(fastest_s, fastest_s) if fastest_s < default_s else 0.0
        return between_s + self._seconds_of(default_s, fastest_s)

    def _seconds_of(self, *latencies_s: float) -> float:
        return self._stage.interleave_seconds(latencies_s, _PAIRS, _SECONDS)

    def _slower(self, alternative: Contender, tuned: Build) -> str:
        """Return which of two builds that are faster than a slow default need not be compared with it."""
        vmfbs = [alternative.build.vmfb, tuned.vmfb]
        before, after = self._stage.interleave(vmfbs, _PAIRS, _SECONDS, alternative.latency_s)
        for name, measurement in (("tuned", after), ("alternative", before)):
            if measurement.status is not Status.OK:
                self._notes.append(f"the {name} model is not used: {failure(measurement)}")
                return name
        return "alternative" if compare(before.samples, after.samples).verdict is Verdict.FASTER else "tuned"

    def compile_tuned(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, AnyChoice]
    ) -> tuple[Build | None, dict[str, AnyChoice]]:
        """Build the model with every chosen schedule, then without those that did not land; nothing is run."""
        kept = dict(choices)
        tuned, lost = self._compile_with(base, tasks, kept)
        if lost:
            self.drop(kept, lost)
            tuned, _ = self._compile_with(base, tasks, kept)
        return tuned, kept

    def drop(self, choices: dict[str, AnyChoice], reasons: Mapping[str, str]) -> None:
        """Let tasks keep the default, with a note that says why."""
        for id_, reason in reasons.items():
            choices[id_] = replace(choices[id_], candidate=None, configuration=None, reason=reason)
            self._notes.append(f"task {id_} keeps the compiler's default: {reason}")

    def _build_with(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, Choice]
    ) -> tuple[Build | None, dict[str, str]]:
        """Build and run the model with the chosen schedules; also returns, by task, why any did not land."""
        tuned, lost = self._compile_with(base, tasks, choices)
        if tuned is None:
            return None, lost
        measurement = self._stage.run(tuned.vmfb)
        if measurement.latency_s is None:  # One that is only unsteady is compared with the others in turn.
            self._notes.append(f"the model with tuned tasks is not used: {failure(measurement)}")
            return None, {}
        return tuned, {}

    def _compile_with(
        self, base: Build, tasks: Sequence[Task], choices: Mapping[str, Decision]
    ) -> tuple[Build | None, dict[str, str]]:
        """Build the model with the chosen schedules; also returns, by task, why any did not land."""
        tuned_tasks = [
            tuned_task(task.id, task.tunable.configured, configuration)
            for task in tasks
            if task.tunable and task.id in choices and (configuration := choices[task.id].configuration) is not None
        ]
        if not tuned_tasks:
            return None, {}
        self._session.progress.stage("compiling the model with the tuned tasks")
        output = self._stage.build_of(base.alternative).vmfb.with_name("tuned.vmfb")
        tuned = replace(base.tuned, tasks=tuple(tuned_tasks))
        build = build_model(base.flow, tuned, output, self._stage.timeout_s)
        if not build.outcome.ok:
            self._notes.append(f"the model with tuned tasks is not used, it does not compile: {build.outcome.failure}")
            return None, {}
        lost = {**build.missing, **build.not_landed}
        if lost:
            return None, {id_: f"its schedule is not in the model: it {why}" for id_, why in lost.items()}
        return Build(base.alternative, base.flow, output, tuned), {}
