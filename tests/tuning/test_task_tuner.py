"""What becomes of the candidates of one task."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from felix_mlir.measure import Runner, Status
from felix_mlir.report import SilentProgress
from felix_mlir.search import find_searcher
from felix_mlir.target import parse_target
from felix_mlir.tuning.session import open_session
from felix_mlir.tuning.task_tuner import TaskTuner
from felix_mlir.tuning.workspace import Workspace

CANDIDATES = 3


@pytest.fixture
def tuner(tasks_of, tmp_path):
    """A tuner of a product, after one round of which every candidate read unsteadily."""
    looks: Counter[object] = Counter()
    measure = Runner.measure

    def measure_unsteadily_at_first(self, program, *args):
        measurement = measure(self, program, *args)
        assert measurement.samples
        looks[program.vmfb] += 1
        first = looks[program.vmfb] == 1 and program.vmfb.stem != "default"
        return replace(measurement, status=Status.UNSTABLE if first else Status.OK)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "measure", measure_unsteadily_at_first)
        cpu = parse_target("cpu")
        with (
            Workspace(tmp_path / "work") as workspace,
            open_session(cpu, workspace, workspace.records, SilentProgress()) as session,
        ):
            tuner = TaskTuner(tasks_of("matmul").root, 0.0, session, find_searcher("random"), 0, tmp_path)
            tuner.prepare()
            tuner.run_round(CANDIDATES)
            yield tuner


def test_candidates_that_only_read_unsteadily_are_timed_again_once_they_are_confirmed(tuner):
    assert tuner.counts == {Status.UNSTABLE: CANDIDATES}
    tuner.confirm(0)
    assert tuner.counts == {Status.UNSTABLE: CANDIDATES, Status.OK: CANDIDATES}
    tuner.confirm(0)
    assert tuner.counts.total() == 2 * CANDIDATES
