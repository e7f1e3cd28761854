"""Configured dispatches of every op kind, compiled once a session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest
from configured import CPU, write_flow
from hypothesis import settings
from ops import KINDS

from felix_mlir.tasks import Task, extract_tasks

# On a developer's machine hypothesis looks further each time; a build that gates a change must not.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


# A shell that runs tests in the background ignores Ctrl-C for them, and so would the processes they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

_LONGEST = ("tuning", "cli", "schedule")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: of several processes none then works on alone at the end."""
    items.sort(key=lambda item: item.path.parent.name not in _LONGEST)


@dataclass(frozen=True)
class KindTasks:
    """The tasks of one op of `KINDS`."""

    kind: str
    tasks: list[Task]

    @property
    def root(self) -> Task:
        """The task that holds the op itself: the one with the most work."""
        return max((t for t in self.tasks if t.tunable), key=lambda t: prod(t.iteration_space))


@pytest.fixture(scope="session")
def tasks_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], KindTasks]:
    """Return the tasks of an op kind, isolated and configured by the compiler."""
    known: dict[str, KindTasks] = {}

    def tasks(kind: str) -> KindTasks:
        if kind not in known:
            folder: Path = tmp_path_factory.mktemp(kind)
            known[kind] = KindTasks(kind, extract_tasks(write_flow(KINDS[kind], folder), CPU, folder / "tasks"))
        return known[kind]

    return tasks
