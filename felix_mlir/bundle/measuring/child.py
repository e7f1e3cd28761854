"""The child process that measures, as seen from its parent."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WORKER = Path(__file__).with_name("worker.py")
START_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 5.0
# Without huge pages the same module can read 1.7 times slower, depending on where its buffers fall.
HUGE_PAGES = "glibc.malloc.hugetlb=1"


class Stop(Exception):
    """The run ends with exit status `status`; the message is one line for a reader."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Outcome:
    """How one measurement ended: a status of felix_mlir.measure, and samples in seconds per invocation."""

    status: str
    message: str = ""
    samples: tuple[float, ...] = ()
    error: float | None = None

    @property
    def latency_s(self) -> float | None:
        return float(np.median(self.samples)) if self.samples else None

    @property
    def spread(self) -> float:
        """The distance of the quartiles as a part of the median; 0 without samples."""
        if not self.samples:
            return 0.0
        low, middle, high = np.percentile(self.samples, (25, 50, 75))
        return float((high - low) / middle)


class Child:
    """A worker.py that is ready. Raises Stop if it cannot open its device or does not come up."""

    def __init__(self, device: str) -> None:
        # A file, not a pipe: nobody has to drain it while a job runs.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed by kill)
        inherited = os.environ.get("GLIBC_TUNABLES", "")
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), "--device", device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            # Ctrl-C reaches only the parent, which kills the child then.
            start_new_session=True,
            env={**os.environ, "GLIBC_TUNABLES": f"{inherited}:{HUGE_PAGES}" if inherited else HUGE_PAGES},
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            answer = self._receive(START_TIMEOUT_S)
            if isinstance(answer, Outcome):
                raise Stop(1, f"measuring on {device} does not start: {answer.message}")
            if answer.get("ready") is not True:
                raise Stop(1, f"the device {device} cannot be opened: {answer.get('message')}")
        except BaseException:
            self.kill()
            raise

    def measure(self, job: dict[str, Any], timeout_s: float) -> Outcome:
        """Return how the one program of `job` ended; after crash or run_timeout the child must be killed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return self._died()
        answer = self._receive(timeout_s)
        if isinstance(answer, Outcome):
            return answer
        try:
            (result,) = answer["results"]
            return Outcome(result["status"], result["message"], tuple(result["samples"]), result["error"])
        except (KeyError, TypeError, ValueError) as problem:
            return Outcome("crash", f"the worker's answer cannot be read: {problem!r}")

    def kill(self) -> None:
        """End the child."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._listener.join()
        self._stderr.close()
        self._process.stdout.close()
        with contextlib.suppress(OSError):  # A job that could not be sent is still in its buffer.
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _receive(self, timeout_s: float) -> dict[str, Any] | Outcome:
        """Return the child's next answer, or why there is none."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return Outcome("run_timeout", f"no answer after {timeout_s:g} s")
        if not line:
            return self._died()
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError):
            return Outcome("crash", f"the worker answered {line[:200]!r}, which is no answer")

    def _died(self) -> Outcome:
        try:
            code = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return Outcome("crash", "the worker closed its output")
        if code < 0:
            return Outcome("crash", f"the worker was killed by {_signal_name(-code)}")
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return Outcome("crash", f"the worker ended with exit status {code}: {lines[-1] if lines else ''}")


def _signal_name(number: int) -> str:
    return next((one.name for one in signal.Signals if one == number), f"signal {number}")
