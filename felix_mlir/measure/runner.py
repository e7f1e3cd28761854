"""Measuring modules in a worker that may crash or hang without harm."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from felix_mlir.errors import WorkError
from felix_mlir.measure.measurement import Measurement, Program, Timing
from felix_mlir.measure.statistics import spread
from felix_mlir.measure.status import Status
from felix_mlir.measure.worker_process import (
    WorkerDied,
    WorkerProcess,
    WorkerTimeout,
    worker_command,
    worker_tunables,
)

# When half of the samples are further apart than this part of their median, they rank no candidates.
MAX_SPREAD = 0.3


class Runner:
    """Measures programs on one device, `device` being a URI of iree.runtime; use it as a context manager.

    The worker starts with the first program and serves the following ones. It is replaced after a crash or a
    hang, and killed when the context ends or an exception (Ctrl-C among them) passes. `command` starts
    another worker than the one of this package.

    A program that fails is a Measurement with a status. WorkError says that nothing can be measured: the
    device does not open, or a file of the program is not there.
    """

    def __init__(self, device: str, command: Sequence[str] | None = None) -> None:
        self._command = worker_command(device) if command is None else tuple(command)
        self._worker: WorkerProcess | None = None
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def measure(
        self, program: Program, timing: Timing, timeout_s: float, save_outputs: Path | None = None
    ) -> Measurement:
        """Run `program` once to check its outputs, then time it.

        Ends as OK, WRONG_RESULT (not timed), RUN_TIMEOUT (no answer within `timeout_s` seconds), CRASH (the
        worker died, or IREE refused to load or run the module; the message says which) or UNSTABLE (the
        spread of the samples was above MAX_SPREAD twice: one retry is made, each attempt with the whole of
        `timeout_s`). `save_outputs` is where to write the outputs as an .npz of out0..outN.
        """
        (measurement,) = self._run([program], timing, timeout_s, save_outputs)
        if _is_unstable(measurement):
            (measurement,) = self._run([program], timing, timeout_s, None)
        if _is_unstable(measurement):
            message = f"the samples spread by {spread(measurement.samples):.0%} of their median, twice"
            return replace(measurement, status=Status.UNSTABLE, message=message)
        return measurement

    def measure_interleaved(
        self, programs: Sequence[Program], timing: Timing, timeout_s: float
    ) -> tuple[Measurement, ...]:
        """Time several programs in turn (A B C A B C ...): sample i of each was taken at about the same time.

        Returns one Measurement a program, in order, of `timing.repetitions` samples if it is OK. `timeout_s`
        bounds the whole; all programs and their weights are loaded at once. A hang or a death of the worker
        is the end of all of them, since which one did it is not known. Samples are meant to be compared
        pairwise, so they are never UNSTABLE.
        """
        return self._run(programs, timing, timeout_s, None)

    def _run(
        self, programs: Sequence[Program], timing: Timing, timeout_s: float, save_outputs: Path | None
    ) -> tuple[Measurement, ...]:
        self._last_id += 1
        job = {
            "id": self._last_id,
            "entries": [_entry(program, save_outputs) for program in programs],
            "min_time_s": timing.min_time_s,
            "repetitions": timing.repetitions,
            "invocations": timing.invocations,
            "cutoff_s": timing.cutoff_s,
        }
        command = (
            f"printf '%s\\n' {shlex.quote(json.dumps(job))} | "
            f"GLIBC_TUNABLES={shlex.quote(worker_tunables())} {shlex.join(self._command)}"
        )
        if self._worker is None or not self._worker.alive():
            self._stop()
            self._worker = WorkerProcess(self._command)

        def all_end(status: Status, message: str, stderr: str = "") -> tuple[Measurement, ...]:
            self._stop()
            return (Measurement(status, (), message, None, stderr, False, command),) * len(programs)

        try:
            results = self._worker.ask(job, timeout_s)["results"]
            measurements = tuple(_measurement(result, command) for _, result in zip(programs, results, strict=True))
        except WorkerTimeout as problem:
            return all_end(Status.RUN_TIMEOUT, str(problem))
        except WorkerDied as problem:
            return all_end(Status.CRASH, str(problem), problem.stderr)
        except (KeyError, TypeError, ValueError) as problem:
            return all_end(Status.CRASH, f"the worker's answer cannot be read: {problem!r}")
        if any(measurement.status is Status.CRASH for measurement in measurements):
            # A device that failed once may fail everything that follows (CUDA keeps such errors for ever).
            self._stop()
        return measurements

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def _is_unstable(measurement: Measurement) -> bool:
    return measurement.status is Status.OK and spread(measurement.samples) > MAX_SPREAD


def _entry(program: Program, save_outputs: Path | None) -> dict[str, Any]:
    return {
        "vmfb": _existing(program.vmfb),
        "function": program.function,
        "inputs": _existing(program.inputs),
        "parameters": program.parameters and _existing(program.parameters),
        "expected": program.expected and _existing(program.expected),
        "tolerance": program.tolerance,
        "save_outputs": save_outputs and str(save_outputs.absolute()),
    }


def _existing(path: Path) -> str:
    if not path.is_file():
        raise WorkError(f"nothing to measure: {path} is not there")
    return str(path.absolute())


def _measurement(result: dict[str, Any], command: str) -> Measurement:
    return Measurement(
        status=Status(result["status"]),
        samples=tuple(result["samples"]),
        message=result["message"],
        error=result["error"],
        stderr="",
        cut_off=result["cut_off"],
        command=command,
    )
