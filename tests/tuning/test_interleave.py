"""How long comparing builds of a model takes is known before: the end of a run is what its budget is kept for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from felix_mlir.measure import worker
from felix_mlir.tuning.model_stage import ModelStage


class VirtualTime:
    """A clock that only programs move, each by its `latency` a run."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def program(self, _device: object, entry: dict[str, float]) -> SimpleNamespace:
        def run() -> list[object]:
            self.now += entry["latency"]
            return []

        return SimpleNamespace(invoke=run, outputs=run)


class VirtualRunner:
    """Runs a worker's job in virtual time; a program is its latency."""

    def __init__(self) -> None:
        self.time = VirtualTime()

    def measure_interleaved(self, programs, timing, _timeout_s):
        entries = [{"latency": latency, "expected": None, "save_outputs": None} for latency in programs]
        job = {
            "entries": entries, "min_time_s": timing.min_time_s, "repetitions": timing.repetitions,
            "invocations": None, "cutoff_s": None,
        }  # fmt: skip
        with mock.patch.object(worker, "time", self.time), mock.patch.object(worker, "Program", self.time.program):
            return worker.run_job(None, job)


@given(
    latency=st.floats(1e-4, 60.0),
    others=st.lists(st.floats(0.5, 1.0), max_size=2),
    pairs=st.integers(6, 21),
    seconds=st.floats(0.3, 1.0),
    stands_for_default=st.booleans(),
)
def test_a_comparison_takes_about_as_long_as_was_said(latency, others, pairs, seconds, stands_for_default):
    runner = VirtualRunner()
    workspace = SimpleNamespace(inputs=Path(), expected=Path())
    stage = ModelStage(SimpleNamespace(), workspace, SimpleNamespace(runner=runner))
    stage.program = lambda program: program
    stage.default_latency_s = latency if stands_for_default else 77.0
    slowest_s = None if stands_for_default else latency
    programs = [latency, *(latency * part for part in others)]
    stage.interleave(programs, pairs, seconds, slowest_s)
    said_s = stage.interleave_seconds(len(programs), pairs, seconds, slowest_s)
    assert 0.3 * said_s <= runner.time.now <= 1.5 * said_s
