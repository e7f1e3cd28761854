"""The child process that loads, checks and times compiled modules: a JSON job a line, an answer a line.

Run it by path, `python -P worker.py --device local-task`: it needs only iree.runtime and numpy, so it also
runs where felix_mlir is not installed, and nothing in the caller's directory can shadow what it imports.

First line out: {"ready": true}, or {"ready": false, "message"} (exit status 1) if the device does not open.

Job: {"id", "entries", "min_time_s", "repetitions", "invocations", "cutoff_s"}, where an entry is {"vmfb",
"function", "inputs", "parameters", "expected", "tolerance", "save_outputs"}. Paths are strings. `inputs` is
an .npz of arg0..argN, `expected` an .npz of out0..outN or null, `parameters` an .irpa archive whose scope is
"model" or null, `save_outputs` where to write the .npz of the results or null. `invocations` fixes the number
per sample; null finds the number that makes each sample last min_time_s / repetitions. Several entries are
timed in turn (A B C A B C ...), so that a slow spell of the machine meets all of them.

Answer: {"id", "results"}, one result an entry: {"status", "message", "error", "samples", "invocations",
"cut_off"}. `status` is "ok", "wrong_result" or "crash" (loading or running raised), as in
felix_mlir.measure.Status; `error` is the largest relative error or null; `samples` are seconds per
invocation; `cut_off` says that the calibrating sample was slower than cutoff_s, in which case it is the only
one; otherwise it does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np
from iree.runtime.dtypes import map_dtype_to_hal_element_type
from numpy.typing import NDArray

Array = NDArray[Any]

PARAMETER_SCOPE = "model"
PARENT_CHECK_S = 1.0

# What dtype.isbuiltin says of the types that ml_dtypes adds to numpy.
USER_DEFINED = 2

# Elements of an output that are compared at once.
CHECKED_AT_ONCE = 1 << 16

# A first run of so many seconds says enough of how long one takes.
RAMP_S = 2.0
# A sample that turned out too short is repeated with this much more than should be needed, and never with
# more than ten times as many invocations: the first runs of a module are slow and mislead.
CALIBRATION_MARGIN = 1.2
CALIBRATION_GROWTH = 10


def save_arrays(path: Path, prefix: str, arrays: Sequence[Array]) -> None:
    """Write `arrays` as <prefix>0..<prefix>N of an .npz, at once or not at all.

    A type that numpy does not know itself is stored as its bits, under "<prefix>0:bfloat16" for instance.
    """
    named: dict[str, Any] = {}
    for i, array in enumerate(arrays):
        if array.dtype.isbuiltin == USER_DEFINED:
            named[f"{prefix}{i}:{array.dtype.name}"] = array.view(f"u{array.dtype.itemsize}")
        else:
            named[f"{prefix}{i}"] = array
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **named)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_arrays(path: Path, prefix: str) -> list[Array]:
    """Read what save_arrays wrote, in order of the index; raises ValueError if one is missing."""
    with np.load(path) as archive:
        found: dict[int, Array] = {}
        for key in archive.files:
            name, _, dtype = key.partition(":")
            if name.startswith(prefix) and name[len(prefix) :].isdecimal():
                array = archive[key]
                found[int(name[len(prefix) :])] = array.view(np.dtype(dtype)) if dtype else array
    if sorted(found) != list(range(len(found))):
        raise ValueError(f"{path} has {prefix}{sorted(found)}, not {prefix}0..{prefix}{len(found) - 1}")
    return [found[i] for i in range(len(found))]


class WrongResultError(Exception):
    """The outputs differ from what was expected; `error` is the relative error where there is one."""

    def __init__(self, message: str, error: float | None = None) -> None:
        super().__init__(message)
        self.error = error


def check_outputs(actual: Sequence[Array], expected: Sequence[Array], tolerance: float) -> float:
    """Return the largest relative error of all outputs; raises WrongResultError if it is above `tolerance`.

    The error of a floating-point output is max|actual - expected| / max|expected|: an element-wise one would
    blame cancellation near zero on the schedule. NaN and infinity must be where they are expected. Integers
    and booleans must be equal. Numbers, shapes and types of outputs must match.
    """
    if len(actual) != len(expected):
        raise WrongResultError(f"{len(actual)} outputs, expected {len(expected)}")
    worst = 0.0
    for i, (one, reference) in enumerate(zip(actual, expected, strict=True)):
        if one.shape != reference.shape or one.dtype != reference.dtype:
            raise WrongResultError(f"output {i} is {_type_of(one)}, expected {_type_of(reference)}")
        if one.dtype.kind in "biu":
            different = np.count_nonzero(one != reference)
            if different:
                raise WrongResultError(f"output {i}: {different} of {one.size} elements differ")
            continue
        error = _relative_error(one, reference)
        if not error <= tolerance:
            raise WrongResultError(f"output {i}: relative error {error:.3g} is above {tolerance:.3g}", error)
        worst = max(worst, error)
    return worst


def _type_of(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _relative_error(actual: Array, expected: Array) -> float:
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    actual, expected = actual.reshape(-1), expected.reshape(-1)
    difference = scale = 0.0
    # In parts that stay in a cache: results can be hundreds of megabytes, and every candidate has its own.
    for start in range(0, expected.size, CHECKED_AT_ONCE):
        part = slice(start, start + CHECKED_AT_ONCE)
        one, reference = actual[part].astype(wide), expected[part].astype(wide)
        finite = np.isfinite(reference)
        if not finite.all():
            if not np.array_equal(one[~finite], reference[~finite], equal_nan=True):
                return math.inf
            one, reference = one[finite], reference[finite]
        if not np.isfinite(one).all():
            return math.inf
        difference = max(difference, float(np.abs(one - reference).max(initial=0.0)))
        scale = max(scale, float(np.abs(reference).max(initial=0.0)))
    if scale == 0.0:
        return 0.0 if difference == 0.0 else math.inf
    return difference / scale


class Device:
    """An opened device; `uri` as iree.runtime spells it. Opening it raises ValueError or RuntimeError."""

    def __init__(self, uri: str) -> None:
        self.hal_device = rt.get_device(uri)
        self.instance = rt.VmInstance()
        self.hal_module = rt.create_hal_module(self.instance, self.hal_device)

    def upload(self, array: Array) -> rt.VmRef:
        element_type = map_dtype_to_hal_element_type(array.dtype)
        if element_type is None:
            raise ValueError(f"no device type for {array.dtype}")
        view = self.hal_device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            device=self.hal_device,
            buffer=np.ascontiguousarray(array).reshape(array.shape),
            element_type=element_type,
        )
        if not isinstance(view, rt.HalBufferView):
            raise TypeError(f"the allocator returned {type(view).__name__}")
        return view.ref

    def download(self, value: Any) -> Array:
        if isinstance(value, rt.VmRef):
            view = value.deref(rt.HalBufferView)
            if view is None:
                raise ValueError("the module returned no buffer")
            # A copy: what to_host returns may be the memory of the buffer itself.
            return np.array(rt.DeviceArray(self.hal_device, view).to_host())
        return np.asarray(value)


class Program:
    """A module loaded with its arguments on the device, ready to be invoked again and again."""

    def __init__(self, device: Device, entry: dict[str, Any]) -> None:
        modules = [device.hal_module]
        if entry["parameters"] is not None:
            index = rt.ParameterIndex()
            index.load(entry["parameters"])
            provider = index.create_provider(scope=PARAMETER_SCOPE)
            modules.append(rt.create_io_parameters_module(device.instance, provider))
        module = rt.VmModule.mmap(device.instance, entry["vmfb"])
        self._context = rt.VmContext(device.instance, [*modules, module])
        function = module.lookup_function(entry["function"])
        if function is None:
            raise ValueError(f"no function '{entry['function']}', only {module.function_names}")
        self._function = function
        arguments = load_arrays(Path(entry["inputs"]), "arg")
        self._arguments = rt.VmVariantList(len(arguments))
        for array in arguments:
            self._arguments.push_ref(device.upload(array))
        self._device = device

    def invoke(self) -> rt.VmVariantList:
        results = rt.VmVariantList(1)
        self._context.invoke(self._function, self._arguments, results)
        return results

    def outputs(self) -> list[Array]:
        """Run once and return the results on the host."""
        results = self.invoke()
        return [self._device.download(results.get_variant(i)) for i in range(len(results))]


class Timer:
    """Takes samples of one program, each of `invocations` or, without that, of as many as last `target_s`."""

    def __init__(self, program: Program, target_s: float, invocations: int | None) -> None:
        self._program = program
        self._target_s = 0.0 if invocations else target_s
        self.invocations = invocations or 1

    def sample(self) -> float:
        """Return seconds per invocation."""
        while True:
            total = self._total_s()
            if total >= self._target_s:
                return total / self.invocations
            needed = CALIBRATION_MARGIN * self.invocations * self._target_s / max(total, 1e-9)
            self.invocations = math.ceil(min(needed, CALIBRATION_GROWTH * self.invocations))

    def _total_s(self) -> float:
        invoke = self._program.invoke
        start = time.perf_counter()
        for _ in range(self.invocations):
            invoke()
        return time.perf_counter() - start


def run_job(device: Device, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Check every entry of `job`, then time in turn those that passed; returns one result an entry."""
    results: list[dict[str, Any]] = []
    timed: list[tuple[Timer, dict[str, Any], float]] = []
    for entry in job["entries"]:
        result: dict[str, Any] = {
            "status": "ok",
            "message": "",
            "error": None,
            "samples": [],
            "invocations": 0,
            "cut_off": False,
        }
        results.append(result)
        try:
            program = Program(device, entry)
            first_s = _warm_up(program, entry, result)
        except WrongResultError as problem:
            result.update(status="wrong_result", message=str(problem), error=problem.error)
        except Exception as problem:
            result.update(status="crash", message=_one_line(problem))
        else:
            timer = Timer(program, job["min_time_s"] / job["repetitions"], job["invocations"])
            timed.append((timer, result, first_s))
    for timer, result, first_s in timed:
        _calibrate(timer, result, first_s, job["cutoff_s"])
    for repetition in range(job["repetitions"]):
        for timer, result, _ in timed:
            if result["status"] == "ok" and not result["cut_off"] and len(result["samples"]) <= repetition:
                _add_sample(timer, result)
    return results


def _warm_up(program: Program, entry: dict[str, Any], result: dict[str, Any]) -> float:
    """Run once, check the outputs and return the seconds that took."""
    start = time.perf_counter()
    outputs = program.outputs()
    seconds = time.perf_counter() - start
    if entry["expected"] is not None:
        expected = load_arrays(Path(entry["expected"]), "out")
        result["error"] = check_outputs(outputs, expected, entry["tolerance"])
    if entry["save_outputs"] is not None:
        save_arrays(Path(entry["save_outputs"]), "out", outputs)
    return seconds


def _calibrate(timer: Timer, result: dict[str, Any], first_s: float, cutoff_s: float | None) -> None:
    if first_s < RAMP_S:
        _add_sample(timer, result)
    else:  # So long a run has the ramp of clocks and thread pools behind it, and is as good a sample as any.
        result.update(samples=[first_s], invocations=1)
    if cutoff_s is not None and result["samples"] and result["samples"][0] > cutoff_s:
        result["cut_off"] = True
    elif first_s < RAMP_S:
        # It includes the ramp: good enough as evidence of a cut-off, not as a sample.
        result["samples"] = []


def _add_sample(timer: Timer, result: dict[str, Any]) -> None:
    try:
        result["samples"].append(timer.sample())
        result["invocations"] = timer.invocations
    except Exception as problem:
        result.update(status="crash", message=_one_line(problem), samples=[])


def _one_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _exit_with_parent() -> None:
    # A parent killed with SIGKILL cannot stop a worker that hangs inside a module.
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def _wake_without_displacing() -> None:
    """Let this thread, when a device's thread wakes it, wait until that one gives up its core.

    The wait of IREE 3.13 for a semaphore spins until the waking thread has left its callback (iree/async/semaphore.c).
    Woken on that thread's own core, as half of all waits are on two cores, it would spin for what the scheduler gives
    it, and keep that thread, a worker, from its work: half a millisecond a run. Threads of Linux's "batch" policy take
    no core from another. To be called when the device has its threads, which would inherit it.
    """
    with contextlib.suppress(AttributeError, OSError):  # Another system, or a sandbox: samples only spread more.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    parser = argparse.ArgumentParser(description="time compiled modules: JSON jobs in, JSON answers out")
    parser.add_argument("--device", required=True, help="device URI, for instance local-task")
    uri: str = parser.parse_args().device

    # A library that prints must not end up in the protocol: it keeps the old stdout for itself, and everybody
    # else's stdout becomes stderr.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_exit_with_parent, daemon=True).start()

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        device = Device(uri)
    except (ValueError, RuntimeError) as problem:
        answer({"ready": False, "message": _one_line(problem)})
        sys.exit(1)
    _wake_without_displacing()
    answer({"ready": True})
    for line in sys.stdin:
        job = json.loads(line)
        answer({"id": job["id"], "results": run_job(device, job)})


if __name__ == "__main__":
    main()
