"""A finished run read back from its folder: its report, and its tasks as they were tuned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from felix_mlir.errors import RequestError
from felix_mlir.records import Record, Store
from felix_mlir.report import Report, TaskReport
from felix_mlir.schedule import ScheduleTemplate
from felix_mlir.target import Target, host_name, parse_target
from felix_mlir.tasks import Task, TunableTask, extract_tasks
from felix_mlir.tasks.extract import group_executables
from felix_mlir.tuning.manifest import read_manifest
from felix_mlir.tuning.workspace import Workspace


@dataclass(frozen=True)
class FinishedRun:
    """`used` are the ids of the tasks whose tuned schedules are in tuned.vmfb."""

    report: Report
    used: frozenset[str]
    target: Target
    workspace: Workspace
    tasks: dict[str, Task]

    def schedulable(self, row: TaskReport) -> tuple[TunableTask, ScheduleTemplate]:
        """Return a task that was tuned and the template of its schedule; RequestError when the template differs now."""
        tunable = self.tasks[row["id"]].tunable
        for template in tunable.templates if tunable else ():
            names = {knob.name for knob in template.knobs}
            if tunable and template.name == row["template"] and (row["knobs"] is None or row["knobs"].keys() == names):
                return tunable, template
        raise RequestError(f"task {row['id']} was tuned with another version of its template: tune again")

    def records(self, id_: str) -> list[Record]:
        """Return what the run's store has on a task, oldest first; nothing where that is gone."""
        own = self.workspace.records
        path = own if own.exists() else Path(self.report["files"].get("records", own))
        if not path.is_file():
            return []
        with Store(path) as store:
            return store.find(
                task=id_, target=self.target.name, compiler=version("iree-base-compiler"), host=host_name(self.target)
            )


def read_run(directory: Path, folder: Path, only: str | None) -> FinishedRun:
    """Read the run in `directory`, made on this machine, and its tasks again, whose files go to `folder`.

    Raises RequestError when there is none, or none with a task `only`.
    """
    manifest = read_manifest(directory)
    report = _read_report(directory)
    target = parse_target(manifest["target"])
    ids = [row["id"] for row in report["tasks"]]
    if only is not None and only not in ids:
        raise RequestError(f"the run has no task {only}; it has {', '.join(ids) or 'none'}")
    for what, then, now in (
        ("on", manifest.get("host"), host_name(target)),
        ("with iree-base-compiler", manifest["versions"]["iree-base-compiler"], version("iree-base-compiler")),
    ):
        if then != now:
            raise RequestError(f"{directory} was tuned {what} {then}, not {now}: explain it there, or tune again")
    flow = _flow_of(directory, report, target)
    # Only now: a workspace makes the folders it does not find.
    workspace = Workspace(directory)
    tasks = {task.id: task for task in extract_tasks(flow, target, folder)}
    return FinishedRun(report, frozenset(manifest["tasks"]), target, workspace, tasks)


def _read_report(directory: Path) -> Report:
    path = directory / "report.json"
    if not path.is_file():
        raise RequestError(f"{directory} holds no finished result: run felix-mlir tune MODEL --out {directory}")
    try:
        report: Report = json.loads(path.read_text())
        is_whole = report.keys() >= Report.__required_keys__ and all(
            row.keys() >= TaskReport.__required_keys__ for row in report["tasks"]
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise RequestError(f"{path} is damaged: tune again") from error
    if not is_whole:
        raise RequestError(f"{path} is damaged or from another version of felix-mlir: tune again")
    return report


def _flow_of(directory: Path, report: Report, target: Target) -> Path:
    """The build whose tasks were tuned: not always the one that won."""
    wanted = {row["id"] for row in report["tasks"]}
    flows = sorted((directory / "work" / "variants").glob("*/flow.mlirbc"))
    flows.sort(key=lambda flow: flow.parent.name != report["alternative"])
    found = next((flow for flow in flows if wanted == group_executables(flow, target).keys()), None)
    if found is None:
        raise RequestError(
            f"{directory}/work does not hold the build that was tuned: run this on the folder felix-mlir tune wrote, "
            "not on a copy of its results"
        )
    return found
