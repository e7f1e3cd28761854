"""Search problems made of a task, on a machine of round figures and with the bound alone as the cost model."""

from __future__ import annotations

from collections.abc import Sequence

from felix_mlir.cost import CostModel, Machine, OnlineModel
from felix_mlir.cost.rates import ELEMENT_TYPES, MachineRates
from felix_mlir.features import read_host
from felix_mlir.schedule import ScheduleTemplate, Space
from felix_mlir.search import Candidate, SearchProblem, legal_spaces
from felix_mlir.tasks import Task

RATES = MachineRates(dict.fromkeys(ELEMENT_TYPES, 1e11), 1e11, 5e10, 3e10, 1e10, 2e10, 1e-6)
MACHINE = Machine(read_host(), RATES)


def make_problem(
    task: Task,
    start: Sequence[Candidate] = (),
    templates: Sequence[ScheduleTemplate] | None = None,
    spaces: Sequence[Space] | None = None,
) -> SearchProblem:
    tunable = task.tunable
    chosen = spaces or legal_spaces(templates or tunable.templates)

    def model() -> OnlineModel:
        """A new one for every searcher: each stands for a run of its own."""
        return OnlineModel(CostModel.untrained(), MACHINE)

    return SearchProblem(
        task.id, tuple(chosen), tunable.configured, tunable.limits.native_vector_bytes, model, tuple(start)
    )
