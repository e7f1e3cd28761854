"""What every stage of a run shares: the target, the tools that build and measure, and the records."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.measure import Builder, Measurement, Runner, Status
from felix_mlir.records import Record, Store
from felix_mlir.report.progress import Progress
from felix_mlir.target import Target, host_name, measuring_devices
from felix_mlir.tuning.workspace import Workspace, copy_whole

if TYPE_CHECKING:
    from felix_mlir.cost import OnlineModel

_CANDIDATE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Session:
    """`builder` and `runners` must not work at the same time: they share the cores that are timed.

    There is a runner per device of the target, all of one model. `cost_model` returns the one model all tasks share;
    the first call loads it.
    """

    target: Target
    builder: Builder
    runners: tuple[Runner, ...]
    store: Store
    progress: Progress
    compiler: str
    host: str
    cost_model: Callable[[], OnlineModel]

    @property
    def runner(self) -> Runner:
        """The first device's."""
        return self.runners[0]

    def record(
        self,
        task: str,
        template: str,
        knobs: dict[str, int],
        status: Status,
        *,
        latency_s: float | None = None,
        samples: tuple[float, ...] = (),
        reference_s: float | None = None,
        message: str = "",
        command: str = "",
    ) -> Record:
        """Store how one candidate ended, on disk before this returns."""
        record = Record(
            task, template, knobs, self.target.name, self.compiler, self.host, status, latency_s, samples,
            reference_s, message, command,
        )  # fmt: skip
        self.store.add(record)
        return record

    def history(self, task: str) -> list[Record]:
        """Return what this machine, target and compiler already have on a task, oldest first."""
        return self.store.find(task=task, target=self.target.name, compiler=self.compiler, host=self.host)


@contextmanager
def open_session(target: Target, workspace: Workspace, records: Path, progress: Progress) -> Generator[Session]:
    """Open the record store and get builder and runner ready; closes them at the end."""
    builder = Builder(target.cores, _CANDIDATE_TIMEOUT_S, workspace.work / "cache")
    with Store(records) as store, ExitStack() as stack:
        runners = tuple(stack.enter_context(Runner(device)) for device in measuring_devices(target))
        compiler, host = version("iree-base-compiler"), host_name(target)
        model = cache(partial(_cost_model, target, workspace))
        yield Session(target, builder, runners, store, progress, compiler, host, model)


def _cost_model(target: Target, workspace: Workspace) -> OnlineModel:
    """Load the model this folder began with, so that a later version goes on as the first run would have."""
    from felix_mlir.cost import CostModel, OnlineModel, read_machine
    from felix_mlir.cost.model import SHIPPED

    if not workspace.cost_model.exists():
        if target.device == "cuda":  # What ships was trained on processors.
            CostModel.untrained().save(workspace.cost_model)
        else:
            copy_whole(SHIPPED, workspace.cost_model)
    return OnlineModel(CostModel.load(workspace.cost_model), read_machine(target))


def failure(measurement: Measurement) -> str:
    """One line for a reader on why something that had to run did not."""
    return f"{measurement.status.value}: {measurement.message} (reproduce: {measurement.command})"
