"""Real modules, compiled once, and fake workers that misbehave on command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import iree.runtime
import numpy as np
import pytest
from ops import ACCUMULATING_MATMUL

import felix_mlir.errors
from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.measure import Program, Timing, runner, save_arrays
from felix_mlir.target import parse_target

REPOSITORY = Path(felix_mlir.errors.__file__).parents[1]

WEIGHT = """
util.global private @weight = #flow.parameter.named<"model"::"weight"> : tensor<4xf32>
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %weight = util.global.load @weight : tensor<4xf32>
  %sum = arith.addf %a, %weight : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""
MIXED = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xbf16>, %m: tensor<4xi1>)
    -> (tensor<4xbf16>, tensor<4xi1>, tensor<f32>) {
  %narrow = arith.truncf %a : tensor<4xf32> to tensor<4xbf16>
  %sum = arith.addf %narrow, %b : tensor<4xbf16>
  %true = arith.constant dense<true> : tensor<4xi1>
  %not = arith.xori %m, %true : tensor<4xi1>
  %scalar = arith.constant dense<3.0> : tensor<f32>
  return %sum, %not, %scalar : tensor<4xbf16>, tensor<4xi1>, tensor<f32>
}
"""

FAKE_WORKER = """
import json, os, signal, subprocess, sys, time
def say(message):
    print(json.dumps(message), flush=True)
def result(*samples, status="ok"):
    return {"status": status, "message": "", "error": None, "samples": samples, "cut_off": False}
say({"ready": True})
for line in sys.stdin:
    job = json.loads(line)
    what = job["entries"][0]["function"]
    with open(LOG, "a") as log:
        print(os.getpid(), what, file=log, flush=True)
    if what == "ok":
        say({"id": job["id"], "results": [result(1.0, 1.1, 1.0)] * len(job["entries"])})
    elif what == "slow":
        time.sleep(0.3)
        say({"id": job["id"], "results": [result(1.0)]})
    elif what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"])
        with open(LOG, "a") as log:
            print(child.pid, "child", file=log, flush=True)
        time.sleep(600)
    elif what == "exit":
        print("the reason is here", file=sys.stderr, flush=True)
        sys.exit(3)
    elif what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "close":
        os.close(1)
        time.sleep(600)
    elif what == "garbage":
        print("Hello from a library!", flush=True)
        say({"id": job["id"], "results": [result(1.0)]})
    elif what == "list":
        say([1, 2, 3])
    elif what == "wrong id":
        say({"id": job["id"] - 1, "results": [result(1.0)]})
    elif what == "no results":
        say({"id": job["id"]})
    elif what == "too few":
        say({"id": job["id"], "results": []})
    elif what == "unknown status":
        say({"id": job["id"], "results": [result(1.0, status="splendid")]})
    elif what == "cut off":
        sys.stdout.write(json.dumps({"id": job["id"], "results": [result(1.0)]})[:20])
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "unstable":
        say({"id": job["id"], "results": [result(1.0, 2.0, 3.0)]})
    elif what == "unstable once":
        with open(LOG) as log:
            first = log.read().count("unstable once") == 1
        say({"id": job["id"], "results": [result(1.0, 2.0, 3.0) if first else result(2.0, 2.0, 2.0)]})
"""


class Modules:
    """Compiled modules and their inputs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.matmul = self._compile("matmul", ACCUMULATING_MATMUL.replace("INIT", "0.0"))
        self.matmul_plus_one = self._compile("matmul_plus_one", ACCUMULATING_MATMUL.replace("INIT", "1.0"))
        self.weight = self._compile("weight", WEIGHT)
        self.mixed = self._compile("mixed", MIXED)
        random = np.random.default_rng(0)
        self.a, self.b = random.random((2, 32, 32), dtype=np.float32)
        self.inputs = folder / "inputs.npz"
        self.expected = folder / "expected.npz"
        save_arrays(self.inputs, "arg", [self.a, self.b])
        save_arrays(self.expected, "out", [self.a @ self.b])
        self.parameters = folder / "weight.irpa"
        iree.runtime.save_archive_file({"weight": np.arange(4, dtype=np.float32)}, self.parameters)

    def _compile(self, name: str, text: str) -> Path:
        source, output = self.folder / f"{name}.mlir", self.folder / f"{name}.vmfb"
        source.write_text(text)
        flags = parse_target("cpu").compile_flags
        outcome = run_compiler((tool_path("iree-compile"), *flags, str(source), "-o", str(output)), 120)
        assert outcome.ok, outcome.stderr
        return output


class FakeWorker:
    """A worker that does what the function of its program says; `log` has a line "pid what" a job."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        script = folder / "fake_worker.py"
        script.write_text(f"LOG = {str(self.log)!r}\n{FAKE_WORKER}")
        self.command = (sys.executable, str(script))
        self._file = folder / "file"
        self._file.touch()

    def program(self, what: str) -> Program:
        return Program(self._file, self._file, function=what)

    def entries(self) -> list[tuple[int, str]]:
        lines = self.log.read_text().splitlines()
        return [(int(pid), what) for pid, _, what in (line.partition(" ") for line in lines)]


def _is_gone(pid: int) -> bool:
    """Wait until no process `pid` runs any more; a zombie that nobody has collected counts as gone."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def is_gone():
    return _is_gone


@pytest.fixture
def start_python():
    """Start a script in another interpreter that can import felix_mlir; ended with the test."""
    started = []

    def start(script: str, *arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:  # Waits for it and closes its pipes.
            pass


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    return Modules(tmp_path_factory.mktemp("modules"))


@pytest.fixture
def fake(tmp_path):
    return FakeWorker(tmp_path)


@pytest.fixture
def timing():
    return Timing(min_time_s=0.02, repetitions=4)


@pytest.fixture
def patient(monkeypatch):
    """Accept any spread, for tests on a noisy machine that are about something else."""
    monkeypatch.setattr(runner, "MAX_SPREAD", float("inf"))
