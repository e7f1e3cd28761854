"""What every stage of a run shares: the target, the tools that build and measure, and the records."""

from __future__ import annotations

import platform
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from felix_mlir.measure import Builder, Measurement, Runner, Status
from felix_mlir.records import Record, Store
from felix_mlir.report.progress import Progress
from felix_mlir.target import Target
from felix_mlir.tuning.workspace import Workspace

_CANDIDATE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Session:
    """`builder` and `runner` must not work at the same time: they share the cores that are timed."""

    target: Target
    builder: Builder
    runner: Runner
    store: Store
    progress: Progress
    compiler: str
    host: str

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
    with Store(records) as store, Runner(target.device) as runner:
        yield Session(target, builder, runner, store, progress, version("iree-base-compiler"), host_name(target))


def host_name(target: Target) -> str:
    """Name the hardware that measurements depend on: processor model and cores, not the machine's own name."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in cpuinfo.read_text().splitlines())
        }
        keys = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
        model = " ".join(fields[key] for key in keys if fields.get(key)) or model
    return f"{model} x{target.cores}"


def failure(measurement: Measurement) -> str:
    """One line for a reader on why something that had to run did not."""
    return f"{measurement.status.value}: {measurement.message} (reproduce: {measurement.command})"
