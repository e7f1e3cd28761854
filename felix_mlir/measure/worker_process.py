"""One worker child and the conversation with it: JSON lines, each answered within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from felix_mlir.compiler.process import kill_group
from felix_mlir.errors import WorkError

START_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 5.0
STDERR_TAIL_BYTES = 4000

# Without huge pages the same module can read 1.7 times slower, depending on where its buffers fall.
HUGE_PAGES = "glibc.malloc.hugetlb=1"


class WorkerTimeout(Exception):
    """The worker did not answer in time and has been killed."""


class WorkerDied(Exception):
    """The worker ended, or said what is no answer and has been killed; `stderr` is the end of what it wrote."""

    def __init__(self, message: str, stderr: str) -> None:
        super().__init__(message)
        self.stderr = stderr


def worker_command(device: str) -> tuple[str, ...]:
    """Return what starts a worker for `device`, a URI of iree.runtime."""
    # By path and with -P: importing the package would load much that a worker must not wait for, and a file
    # in the current directory must not stand in for a module of the same name.
    return (sys.executable, "-P", str(Path(__file__).with_name("worker.py")), "--device", device)


def worker_tunables() -> str:
    """Return the value of GLIBC_TUNABLES a worker gets: what this process has, and huge pages."""
    inherited = os.environ.get("GLIBC_TUNABLES", "")
    return f"{inherited}:{HUGE_PAGES}" if inherited else HUGE_PAGES


class WorkerProcess:
    """A started worker, in a process group of its own: Ctrl-C reaches only the parent, which kills it then.

    Starting raises WorkError if the worker cannot open its device or does not come up.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # A file, not a pipe: nobody has to drain it while a job runs.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed by kill)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
            env={**os.environ, "GLIBC_TUNABLES": worker_tunables()},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        self._unread = b""
        try:
            self._greet()
        except BaseException:
            self.kill()
            raise

    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send `job` and return the answer with the same id; raises WorkerTimeout or WorkerDied."""
        self._forget_stderr()
        try:
            self._send(json.dumps(job))
            answer = self._receive(timeout_s)
            if answer.get("id") != job["id"]:
                raise WorkerDied(f"the worker answered job {answer.get('id')}, not {job['id']}", self._stderr_tail())
        except BaseException:  # Ctrl-C must not leave the worker running.
            self.kill()
            raise
        return answer

    def kill(self) -> None:
        """End the worker and whatever it started; may be called again."""
        if self._stderr.closed:
            return
        if self._process.returncode is None:  # Otherwise its number may be another process's by now.
            kill_group(self._process.pid)
            self._process.wait()
        self._stderr.close()
        self._stdout.close()
        with contextlib.suppress(BrokenPipeError):  # A job that could not be sent is still in its buffer.
            self._stdin.close()

    def _greet(self) -> None:
        try:
            answer = self._receive(START_TIMEOUT_S)
        except WorkerDied as problem:
            last_line = problem.stderr.strip().rpartition("\n")[2]
            raise WorkError(f"the measuring process does not start: {problem}: {last_line}") from problem
        except WorkerTimeout as problem:
            raise WorkError(f"the measuring process does not start: {problem}") from problem
        if answer.get("ready") is not True:
            raise WorkError(f"the measuring process cannot open its device: {answer.get('message')}")

    def _send(self, line: str) -> None:
        try:
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        line = self._read_line(timeout_s)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = line[:200].decode(errors="replace")
            raise WorkerDied(f"the worker answered '{text}', which is no answer", self._stderr_tail())
        return answer

    def _read_line(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise WorkerTimeout(f"no answer after {timeout_s:g} s")
                chunk = os.read(self._stdout.fileno(), 1 << 16)
                if not chunk:
                    raise self._died()
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _died(self) -> WorkerDied:
        try:
            code = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            how = "closed its output"
        else:
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit status {code}"
        return WorkerDied(f"the worker {how}", self._stderr_tail())

    def _forget_stderr(self) -> None:
        # The child writes at the offset of the file it shares with this process.
        self._stderr.seek(0)
        self._stderr.truncate()

    def _stderr_tail(self) -> str:
        descriptor = self._stderr.fileno()
        start = max(0, os.fstat(descriptor).st_size - STDERR_TAIL_BYTES)
        return os.pread(descriptor, STDERR_TAIL_BYTES, start).decode(errors="replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
