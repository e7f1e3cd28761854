"""The final comparison of a slow model: what is fast is told apart by itself, the default runs as little as it can."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from felix_mlir.apply import DEFAULT, with_tasks
from felix_mlir.measure import Measurement, Status
from felix_mlir.report import SilentProgress
from felix_mlir.target import parse_target
from felix_mlir.tuning.finish import Finish
from felix_mlir.tuning.model_stage import Build


def alternative(name: str) -> SimpleNamespace:
    return SimpleNamespace(build=build(name), latency_s=2.0)


def build(name: str) -> Build:
    return Build(DEFAULT, Path("flow"), Path(name), with_tasks("", parse_target("cpu"), DEFAULT))


class SlowStage:
    """A model whose builds take the given seconds, or crash where there is none; `runs` are what was timed in turn."""

    is_slow = True

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self.runs: list[tuple[str, ...]] = []

    def _measured(self, vmfb: Path, count: int) -> Measurement:
        seconds = self._seconds.get(vmfb.name)
        if seconds is None:
            return Measurement(Status.CRASH, (), "it crashed", None, "", False, "run it")
        return Measurement(Status.OK, (seconds,) * count, "", 0.0, "", False, "")

    def interleave(self, vmfbs, pairs, seconds, slowest_s=None) -> tuple[Measurement, ...]:
        self.runs.append(tuple(vmfb.name for vmfb in vmfbs))
        return tuple(self._measured(vmfb, 2 if slowest_s is None else pairs) for vmfb in vmfbs)


@pytest.mark.parametrize(
    ("seconds", "winner"),
    [
        ({"default": 9.0, "alternative": 2.0, "tuned": 1.9}, "tuned"),
        ({"default": 9.0, "alternative": 1.9, "tuned": 2.0}, "alternative"),
        ({"default": 9.0, "alternative": 2.0}, "alternative"),
        ({"default": 9.0, "tuned": 2.0}, "tuned"),
        # Two pairs do not tell a small gain from noise.
        ({"default": 2.2, "alternative": 2.0, "tuned": 1.9}, "default"),
    ],
)
def test_the_faster_of_two_is_compared_with_a_slow_default(seconds, winner):
    stage, notes = SlowStage(seconds), []
    finish = Finish(stage, SimpleNamespace(progress=SilentProgress()), notes)
    outcome = finish.compare(build("default"), alternative("alternative"), build("tuned"), {})
    assert outcome.winner == winner
    assert len(outcome.measured) == 2 and len(outcome.measured["default"].samples) == 2
    assert sum("default" in names for names in stage.runs) == 1
    assert ["it crashed" in note for note in notes] == [True] * (3 - len(seconds))


def test_an_unsteady_machine_fails_nobody():
    """Samples that spread say nothing against a build: they are there to see that it works."""
    stage = SlowStage({"default": 9.0, "tuned": 2.0})
    stage.run = lambda _: Measurement(Status.UNSTABLE, (1.0, 2.0, 3.0), "they spread", 0.0, "", False, "run it")
    notes: list[str] = []
    target = SimpleNamespace(has_profiler=False)
    finish = Finish(stage, SimpleNamespace(progress=SilentProgress(), target=target), notes)
    finish._compile_with = lambda *_: (build("tuned"), {})
    tuned, _ = finish.build_tuned(build("default"), [], {})
    assert finish.compare(build("default"), alternative("default"), tuned, {}).winner == "tuned"
    assert finish.compare(build("default"), alternative("default"), None, {}).winner == "default"
    assert not notes
