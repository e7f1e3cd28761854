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
    log_latencies=st.lists(st.floats(-4.0, 1.7), min_size=1, max_size=3),
    pairs=st.integers(6, 21),
    seconds=st.floats(0.3, 1.0),
    stands_for_default=st.booleans(),
)
def test_a_comparison_takes_about_as_long_as_was_said(log_latencies, pairs, seconds, stands_for_default):
    latencies = [10.0**exponent for exponent in log_latencies]
    runner = VirtualRunner()
    workspace = SimpleNamespace(inputs=Path(), expected=Path())
    stage = ModelStage(SimpleNamespace(), workspace, SimpleNamespace(runner=runner))
    stage.program = lambda program: program
    stage.default_latency_s = max(latencies) if stands_for_default else 77.0
    stage.interleave(latencies, pairs, seconds, None if stands_for_default else max(latencies))
    said_s = stage.interleave_seconds(latencies, pairs, seconds)
    assert 0.3 * said_s <= runner.time.now <= 2.0 * said_s
