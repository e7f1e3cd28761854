"""Measuring what of a bundle is not among the results yet.

Candidates are taken in groups with a child each, the most promising groups of all tasks first, so that a time limit
cuts off the rest of every task. A task's default is measured before its first candidate and again every few, so that
what the machine drifts divides out.
"""

from __future__ import annotations

import importlib.metadata
import runpy
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .child import WORKER, Child, Outcome, Stop
from .machine import host_name, random_inputs
from .results import RESULTS_FORMAT, Results


class TimeUp(Exception):
    """The time limit of the run was reached."""


class TaskRun:
    """One task on this machine: its files, what its default takes, and the best so far.

    `reference_s` and `default_s` are what a launch of the default took first and last, 0 before it ran; `failure` says
    why it did not run.
    """

    def __init__(self, task: dict[str, Any], bundle: Path, inputs: Path, expected: Path) -> None:
        self.about = task
        self.name = f"{task['kind']} {task['id']}"
        self.reference_s = self.default_s = 0.0
        self.best_s = float("inf")
        self.failure = ""
        self.inputs = inputs
        self._expected = expected
        self._bundle = bundle

    def entry(self, number: int, *, check: bool = False, save: bool = False) -> dict[str, Any]:
        """Return candidate `number` as worker.py takes it; its outputs are compared, or kept to be compared with."""
        return {
            "vmfb": str(self._bundle / self.about["candidates"][number]["file"]),
            "function": "main",
            "inputs": str(self.inputs),
            "parameters": None,
            "expected": str(self._expected) if check else None,
            "tolerance": self.about["tolerance"],
            "save_outputs": str(self._expected) if save else None,
        }


class Session:
    """Measures on `device` until `deadline` (of time.monotonic); `command` is what shows a failure again."""

    def __init__(self, manifest: dict[str, Any], results: Results, device: str, command: str, deadline: float) -> None:
        self._timing = manifest["timing"]
        self._seed = manifest["input_seed"]
        self._total = sum(len(task["candidates"]) for task in manifest["tasks"])
        self._results = results
        self._device = device
        self._command = command
        self._deadline = deadline
        self._begun = time.monotonic()
        self._child: Child | None = None

    def run(self, tasks: list[TaskRun]) -> None:
        """Measure every group of every task. Raises TimeUp and Stop; a task whose default fails gets a `failure`."""
        size = self._timing["group"]
        most = max((len(task.about["candidates"]) for task in tasks), default=0)
        for first in range(0, most, size):
            for task in tasks:
                group = range(first, min(first + size, len(task.about["candidates"])))
                todo = [number for number in group if (task.about["id"], number) not in self._results.done]
                if todo and not task.failure:
                    try:
                        self._measure(task, todo)
                    finally:
                        self._end_child()

    def _measure(self, task: TaskRun, todo: list[int]) -> None:
        self._time_default(task)
        for position, number in enumerate(number for number in todo if number > 0):
            if position and position % self._timing["default_every"] == 0:
                self._time_default(task)
            if task.failure:
                return
            repeats = task.about["repeats"]
            cutoff_s = self._timing["cutoff"] * min(task.default_s, task.best_s * task.default_s / task.reference_s)
            outcome = self._measured_twice_if_unstable(task.entry(number, check=True), cutoff_s * repeats)
            if outcome.status == "ok" and outcome.latency_s:
                task.best_s = min(task.best_s, outcome.latency_s / repeats * task.reference_s / task.default_s)
            self._add(task, number, outcome)

    def _time_default(self, task: TaskRun) -> None:
        """Time the default; the first time also make its inputs, and keep its outputs."""
        repeats = task.about["repeats"]
        if task.reference_s:
            latency_s = self._measured(task.entry(0), None).latency_s
            task.default_s = latency_s / repeats if latency_s else task.default_s
            return
        _save_inputs(task.inputs, random_inputs(task.about["inputs"], self._seed))
        outcome = self._measured(task.entry(0, save=True), None)
        if outcome.latency_s:
            task.reference_s = task.default_s = outcome.latency_s / repeats
        else:
            task.failure = f"{outcome.status}: {outcome.message}"
        if (task.about["id"], 0) not in self._results.done:
            self._add(task, 0, outcome)

    def _measured_twice_if_unstable(self, entry: dict[str, Any], cutoff_s: float) -> Outcome:
        outcome = self._measured(entry, cutoff_s)
        if outcome.status == "ok" and outcome.spread > self._timing["max_spread"]:
            outcome = self._measured(entry, cutoff_s)
            if outcome.status == "ok" and outcome.spread > self._timing["max_spread"]:
                message = f"the samples spread by {outcome.spread:.0%} of their median, twice"
                return Outcome("unstable", message, outcome.samples, outcome.error)
        return outcome

    def _measured(self, entry: dict[str, Any], cutoff_s: float | None) -> Outcome:
        """Run one program in the child, which is replaced after a crash or a hang."""
        job = {
            "id": 0,
            "entries": [entry],
            "min_time_s": self._timing["min_time_s"],
            "repetitions": self._timing["repetitions"],
            "invocations": None,
            "cutoff_s": cutoff_s,
        }
        if self._child is None:
            self._child = Child(self._device)
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeUp
        outcome = self._child.measure(job, min(self._timing["timeout_s"], remaining_s))
        if outcome.status in ("crash", "run_timeout"):
            # A device that failed once may fail everything that follows (CUDA keeps such errors for ever).
            self._end_child()
        if outcome.status == "run_timeout" and remaining_s < self._timing["timeout_s"]:
            raise TimeUp
        return outcome

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _add(self, task: TaskRun, number: int, outcome: Outcome) -> None:
        """Append what became of a candidate, its times per launch and those of the default beside it."""
        candidate = task.about["candidates"][number]
        repeats = task.about["repeats"]
        self._results.add({
            "task": task.about["id"],
            "candidate": number,
            "template": candidate["template"],
            "knobs": candidate["knobs"],
            "status": outcome.status,
            "samples": [sample / repeats for sample in outcome.samples],
            "default_s": task.default_s or None,
            "reference_s": task.reference_s or None,
            "error": outcome.error,
            "message": outcome.message,
            "command": "" if outcome.status == "ok" else self._command,
            "created": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        })  # fmt: skip
        speed = ""
        if outcome.status == "ok" and outcome.latency_s:
            speed = f", {task.default_s * repeats / outcome.latency_s:.2f}x the default"
        count = f"{len(self._results.done)} of {self._total}"
        elapsed_s = time.monotonic() - self._begun
        _say(f"[{elapsed_s:6.1f} s] {count}: {task.name}, candidate {number}: {outcome.status}{speed}")


def measure(
    root: Path,
    manifest: dict[str, Any],
    digest: str,
    bundle: Path,
    output: Path,
    device: str | None,
    time_limit_s: float,
) -> int:
    """Measure the bundle that was unpacked in `root` and append to `output`; returns the exit status.

    `digest` is the bundle's hash, `device` one to use instead of the target's own.
    """
    deadline = time.monotonic() + time_limit_s
    try:
        with tempfile.TemporaryDirectory(prefix="felix-bundle-") as folder:
            uri = str(device or manifest["device"])
            results = Results(output, _header(manifest, digest, uri))
            command = f"python run_bundle.py {shlex.quote(str(bundle))} -o again.jsonl --device {shlex.quote(uri)}"
            tasks = [
                TaskRun(task, root, Path(folder, f"{number}.inputs.npz"), Path(folder, f"{number}.expected.npz"))
                for number, task in enumerate(manifest["tasks"])
            ]
            session = Session(manifest, results, uri, command, deadline)
            try:
                session.run(tasks)
                ending = ""
            except TimeUp:
                ending = "; the time limit was reached, and the same command goes on"
    except Stop as problem:
        _say(f"run_bundle: {problem}")
        return problem.status
    total = sum(len(task["candidates"]) for task in manifest["tasks"])
    failures = [f"the default of {task.name} does not run here ({task.failure})" for task in tasks if task.failure]
    for failure in failures:
        _say(f"run_bundle: {failure}")
    _say(f"{output}: {len(results.done)} of {total} candidates{ending}")
    return 1 if failures else 0


def _header(manifest: dict[str, Any], digest: str, device: str) -> dict[str, Any]:
    """Return the first line of the results: what was measured, by what, and where."""
    try:
        runtime = importlib.metadata.version("iree-base-runtime")
    except importlib.metadata.PackageNotFoundError:  # Built by hand, as on boards there are no packages for.
        runtime = "unknown"
    if runtime not in ("unknown", manifest["compiler"]):
        _say(f"note: the bundle was compiled with IREE {manifest['compiler']}, the runtime here is {runtime}")
    header = {key: manifest[key] for key in ("model", "target", "compiler")}
    host = host_name(device)
    return {"format": RESULTS_FORMAT, "bundle": digest, **header, "runtime": runtime, "device": device, "host": host}


def _save_inputs(path: Path, arrays: list[Any]) -> None:
    # By path: in felix-mlir's own source the worker is in another folder.
    runpy.run_path(str(WORKER))["save_arrays"](path, "arg", arrays)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
