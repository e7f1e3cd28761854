"""Drawn candidates of every op kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from felix_mlir.schedule import LegalSpace, ScheduleTemplate
from felix_mlir.tasks import TunableTask


@dataclass(frozen=True)
class Drawn:
    """A template with legal candidates of it: the compiler's choice first, then uniform draws."""

    task: TunableTask
    template: ScheduleTemplate
    candidates: list[dict[str, int]]


@pytest.fixture(scope="session")
def drawn(tasks_of) -> Callable[[str, int], list[Drawn]]:
    """Return every template of every tunable task of a kind, with `count` drawn candidates each."""

    def draw(kind: str, count: int) -> list[Drawn]:
        found: list[Drawn] = []
        for task in (task.tunable for task in tasks_of(kind).tasks if task.tunable):
            for template in task.templates:
                default = template.values_of(task.default)
                candidates = LegalSpace(template).draw(count, np.random.default_rng(11))
                found.append(Drawn(task, template, ([default] if default else []) + candidates))
        return found

    return draw
