"""What one machine can do at most, measured once: arithmetic, memory traffic, and the price of a dispatch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.features.machine import MachineError, read_host
from felix_mlir.measure import Program, Runner, Timing, save_arrays
from felix_mlir.measure.worker_process import worker_tunables
from felix_mlir.target import Target, host_name

OVERRIDE = "FELIX_MLIR_RATES"
ELEMENT_TYPES = ("f64", "f32", "f16", "bf16", "i8", "i32")

# Part of the cache's key: count it up when what is measured, or how, changes.
_SCHEMA = 2
_PROBE = Path(__file__).with_name("rates_probe.py")
_PROBE_TIMEOUT_S = 20.0
_BUILD_TIMEOUT_S = 60.0
_RUN_TIMEOUT_S = 60.0
_TIMING = Timing(min_time_s=0.05, repetitions=5)
_MIB = 1 << 20
# A virtual machine names the L3 of the whole socket, of which it gets a part: no more than this many L2 are tried.
_L3_PER_L2 = 16
_LAUNCHES = 64
_LAUNCH = """
func.func @main(%a: tensor<16xf32>) -> tensor<16xf32> {
  %sum = arith.addf %a, %a : tensor<16xf32>
  return %sum : tensor<16xf32>
}
"""


@dataclass(frozen=True)
class MachineRates:
    """The best a machine was seen to do.

    `flops` are FLOP/s of one core for each of ELEMENT_TYPES, a multiplication and an addition counting as two.
    `l1_bytes_s` to `memory_bytes_s` are bytes per second that one core streams from data that fits the level,
    `memory_all_bytes_s` what all cores together get from memory. `launch_s` is the seconds an empty dispatch costs.
    """

    flops: Mapping[str, float]
    l1_bytes_s: float
    l2_bytes_s: float
    l3_bytes_s: float
    memory_bytes_s: float
    memory_all_bytes_s: float
    launch_s: float

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> MachineRates:
        """Return the rates that to_json wrote; raises ValueError unless all are there, positive and finite."""
        data = table(json.loads(text), "the file")
        flops = table(data.get("flops"), "'flops'")
        rates = {field.name: positive(data, field.name) for field in fields(cls) if field.name != "flops"}
        return cls(flops={name: positive(flops, name) for name in ELEMENT_TYPES}, **rates)


def read_rates(target: Target) -> MachineRates:
    """Return the rates of this machine, measured the first time (a few seconds on all cores) and then kept.

    They are kept in the user's cache folder. A JSON file that FELIX_MLIR_RATES names goes before; RequestError if
    it cannot be used. WorkError if measuring fails.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        try:
            return MachineRates.from_json(Path(override).read_text())
        except (OSError, ValueError) as error:
            raise RequestError(f"{OVERRIDE} names {override}, which holds no rates: {error}") from error
    file = _cache_folder() / f"rates-{_key(target)}.json"
    with contextlib.suppress(OSError, ValueError):
        return MachineRates.from_json(file.read_text())
    rates = _measure(target)
    with contextlib.suppress(OSError):  # Then the next run measures again.
        _write(file, rates.to_json())
    return rates


def _measure(target: Target) -> MachineRates:
    rates = _probe(target)
    try:
        return MachineRates.from_json(json.dumps({**rates, "launch_s": _launch_s(target)}))
    except ValueError as error:
        raise WorkError(f"measuring what this machine can do: {error}") from error


def _probe(target: Target) -> dict[str, Any]:
    """Run the child that measures everything but `launch_s`: it sets the number of threads torch has."""
    try:
        host = read_host()
    except MachineError as error:
        raise WorkError(f"measuring what this machine can do: {error}") from error
    memory = max(64 * _MIB, min(4 * host.l3_bytes, 512 * _MIB))
    l3 = min(host.l3_bytes // 2, _L3_PER_L2 * host.l2_bytes)
    sizes = (host.l1_bytes // 2, host.l2_bytes // 2, l3, memory)
    # By path and with -P: nothing in the current directory can stand in for a module of the same name.
    command = (sys.executable, "-P", str(_PROBE), str(target.cores), *map(str, sizes))
    failed = f"measuring what this machine can do (reproduce: {shlex.join(command)})"
    # Huge pages as candidates have them when they are timed.
    env = {**os.environ, "GLIBC_TUNABLES": worker_tunables()}
    try:
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkError(f"{failed}: no result after {_PROBE_TIMEOUT_S:g} s") from error
    if ended.returncode != 0:
        last = ended.stderr.strip().rpartition("\n")[2]
        raise WorkError(f"{failed}: exit status {ended.returncode}: {last}")
    try:
        return table(json.loads(ended.stdout), "the answer")
    except ValueError as error:
        raise WorkError(f"{failed}: {error}") from error


def _launch_s(target: Target) -> float:
    """Seconds per launch of a dispatch that does next to nothing, timed as candidates are."""
    with tempfile.TemporaryDirectory() as name, Runner(target.device) as runner:
        source, vmfb, inputs = (Path(name) / file for file in ("launch.mlir", "launch.vmfb", "launch.npz"))
        source.write_text(_LAUNCH)
        save_arrays(inputs, "arg", [np.ones(16, np.float32)])
        repeat = f"--iree-hal-benchmark-dispatch-repeat-count={_LAUNCHES}"
        command = (tool_path("iree-compile"), *target.compile_flags, repeat, str(source), "-o", str(vmfb))
        outcome = run_compiler(command, _BUILD_TIMEOUT_S)
        if not outcome.ok:
            raise WorkError(f"measuring the cost of a dispatch: {outcome.status.value}: {outcome.message}")
        measured = runner.measure(Program(vmfb, inputs), _TIMING, _RUN_TIMEOUT_S)
    if measured.latency_s is None:
        raise WorkError(f"measuring the cost of a dispatch: {measured.status.value}: {measured.message}")
    return measured.latency_s / _LAUNCHES


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "felix-mlir"  # noqa: PTH111


def _key(target: Target) -> str:
    return hashlib.sha256(f"{_SCHEMA} {host_name(target)}".encode()).hexdigest()[:16]


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_native_id()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def table(data: Any, what: str) -> dict[str, Any]:
    """Return what JSON gave as an object; raises ValueError that names it."""
    if not isinstance(data, dict):
        raise ValueError(f"{what} is not a JSON object")
    return data


def positive(data: Mapping[str, Any], name: str) -> float:
    """Return a number of an object; raises ValueError unless it is positive and finite."""
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"'{name}' is {value!r}, not a positive finite number")
    return float(value)
