"""Models with several dispatches, and results for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from configured import CPU, write_flow
from ops import conv2d_nchw

from felix_mlir.apply import DEFAULT, tuned_task, with_tasks
from felix_mlir.passes import Tuned
from felix_mlir.passes.tuned import FILE_NAME, write_tuned
from felix_mlir.schedule import LegalSpace
from felix_mlir.tasks import Task, extract_tasks

MODEL = conv2d_nchw(30, 16, 32, 3, epilogue=True)


def draw(tasks: list[Task], seed: int = 0) -> Tuned:
    """A drawn configuration for every tunable task."""
    chosen = []
    for task in tasks:
        if task.tunable:
            template = task.tunable.templates[0]
            (values,) = LegalSpace(template).draw(1, np.random.default_rng(seed))
            chosen.append(tuned_task(task.id, task.tunable.configured, template.configuration(values)))
    return with_tasks("model.mlir", CPU, DEFAULT, chosen)


@dataclass(frozen=True)
class Example:
    """A model, its tasks, and a folder with a drawn result."""

    source: Path
    flow: Path
    tasks: list[Task]
    tuned: Tuned
    folder: Path

    def change(self, change: Callable[[Tuned], Tuned], folder: Path) -> Path:
        """Write a changed result to a new folder."""
        folder.mkdir()
        write_tuned(change(self.tuned), folder / FILE_NAME)
        return folder


def first_task(**changes: object) -> Callable[[Tuned], Tuned]:
    """Change the first task of a result."""
    return lambda tuned: replace(tuned, tasks=(replace(tuned.tasks[0], **changes), *tuned.tasks[1:]))


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    folder = tmp_path_factory.mktemp("example")
    flow = write_flow(MODEL, folder)
    tasks = extract_tasks(flow, CPU, folder / "tasks")
    tuned = draw(tasks)
    (folder / "tuned").mkdir()
    write_tuned(tuned, folder / "tuned" / FILE_NAME)
    return Example(folder / "model.mlir", flow, tasks, tuned, folder / "tuned")
