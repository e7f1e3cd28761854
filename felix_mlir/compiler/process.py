"""Child processes with a time limit: the compiler can crash and, rarely, hang for ever at 0 % CPU."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from felix_mlir.errors import WorkError


class BuildStatus(StrEnum):
    """How a compiler child ended; the values are a subset of felix_mlir.measure.Status."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    CRASH = "crash"


@dataclass(frozen=True)
class BuildOutcome:
    """The end of one compiler child.

    `message` is the first error line of its standard error ("" when ok), `stderr` all of it, `command` what to
    run to see it again, `seconds` its wall time.
    """

    status: BuildStatus
    message: str
    stderr: str
    command: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return self.status is BuildStatus.OK

    @property
    def failure(self) -> str:
        """What went wrong and how to see it again, in one line."""
        return f"{self.message} (reproduce: {shlex.join(self.command)})"


def tool_path(name: str) -> str:
    """Return the path of an IREE tool, preferring the one installed with this interpreter.

    Raises WorkError when there is none.
    """
    # The script on PATH starts a Python interpreter first, which takes as long as compiling a small dispatch.
    compiler = find_spec("iree.compiler")
    for location in (compiler.submodule_search_locations or []) if compiler else []:
        binary = Path(location) / "_mlir_libs" / name
        if binary.is_file():
            return str(binary)
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise WorkError(f"{name} is not installed: pip install iree-base-compiler iree-base-runtime torch-mlir")
    return found


def run_compiler(command: Sequence[str], timeout_s: float) -> BuildOutcome:
    """Run a compiler child in a process group of its own and kill the group after `timeout_s` seconds."""
    start = time.monotonic()
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, stderr = process.communicate(timeout=timeout_s)
        status = _status_of(process.returncode)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        _, stderr = process.communicate()
        status = BuildStatus.COMPILE_TIMEOUT
    except BaseException:  # Ctrl-C must not leave the child running.
        kill_group(process.pid)
        process.wait()
        raise
    message = "" if status is BuildStatus.OK else _message(status, stderr, process.returncode, timeout_s)
    return BuildOutcome(status, message, stderr, tuple(command), time.monotonic() - start)


def _status_of(returncode: int) -> BuildStatus:
    if returncode == 0:
        return BuildStatus.OK
    # A signal ended it (negative), or a shell or wrapper reported one (128 + signal).
    return BuildStatus.CRASH if returncode < 0 or returncode > 128 else BuildStatus.COMPILE_ERROR


def _message(status: BuildStatus, stderr: str, returncode: int, timeout_s: float) -> str:
    if status is BuildStatus.COMPILE_TIMEOUT:
        return f"no result after {timeout_s:g} s"
    errors = [line.strip() for line in stderr.splitlines() if "error:" in line.lower()]
    lines = errors or [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {returncode}"


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads; nothing happens if it is gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
