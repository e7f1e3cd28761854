"""How the run time of a model divides over its dispatches."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from felix_mlir.compiler.process import tool_path
from felix_mlir.errors import WorkError

_TIMEOUT_S = 300.0


def profile_dispatches(module: Path, arguments: Sequence[str], device: str, min_time_s: float) -> dict[str, float]:
    """Run a compiled model under IREE's host profiler; returns nanoseconds per launch by entry point.

    `arguments` are iree-benchmark-module's own (function, inputs, parameters). The mean of a launch is over all call
    sites of the entry point. Raises WorkError when the run or the profile fails.
    """
    with tempfile.TemporaryDirectory(prefix="felix-profile-") as folder:
        profile = Path(folder) / "profile.ireeprof"
        _run([
            tool_path("iree-benchmark-module"), f"--module={module}", f"--device={device}",
            *arguments, f"--benchmark_min_time={min_time_s}s", "--device_profiling_mode=host-execution",
            f"--device_profiling_output={profile}",
        ])  # fmt: skip
        lines = _run([tool_path("iree-profile"), "dispatch", "--format=jsonl", str(profile)]).splitlines()
    groups = [json.loads(line) for line in lines if line.startswith("{")]
    return {
        group["key"]: group["total_ns"] / group["count"]
        for group in groups
        if group.get("type") == "host_dispatch_group" and group["count"]
    }


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkError(f"profiling did not end within {_TIMEOUT_S:g} s: {' '.join(command)}") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise WorkError(f"profiling failed: {reason} (reproduce: {' '.join(command)})")
    return done.stdout
