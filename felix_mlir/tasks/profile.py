"""How the run time of a model divides over its dispatches."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.compiler.process import tool_path
from felix_mlir.errors import WorkError

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Profile:
    """What the launches of each entry point took while the model ran, by the entry point's name.

    Launches inside loops count as often as they were made.
    """

    total_ns: Mapping[str, float]
    launches: Mapping[str, int]

    def share(self, exports: Sequence[str]) -> float:
        """Return the part of all dispatch time that these entry points took."""
        return self._total(exports) / (sum(self.total_ns.values()) or 1.0)

    def launch_s(self, exports: Sequence[str]) -> float:
        """Return the mean time of one launch of these entry points, in seconds; 0 if there was none."""
        launches = sum(self.launches.get(export, 0) for export in exports)
        return 1e-9 * self._total(exports) / launches if launches else 0.0

    def _total(self, exports: Sequence[str]) -> float:
        return sum(self.total_ns.get(export, 0.0) for export in exports)


def profile_dispatches(module: Path, arguments: Sequence[str], device: str, min_time_s: float) -> Profile:
    """Run a compiled model under IREE's host profiler.

    `arguments` are iree-benchmark-module's own (function, inputs, parameters). Raises WorkError when the run or the
    profile fails.
    """
    with tempfile.TemporaryDirectory(prefix="felix-profile-") as folder:
        profile = Path(folder) / "profile.ireeprof"
        _run([
            tool_path("iree-benchmark-module"), f"--module={module}", f"--device={device}",
            *arguments, f"--benchmark_min_time={min_time_s}s", "--device_profiling_mode=host-execution",
            f"--device_profiling_output={profile}",
        ])  # fmt: skip
        lines = _run([tool_path("iree-profile"), "dispatch", "--format=jsonl", str(profile)]).splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    groups = [record for record in records if record.get("type") == "host_dispatch_group"]
    return Profile(
        {group["key"]: group["total_ns"] for group in groups}, {group["key"]: group["count"] for group in groups}
    )


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkError(f"profiling did not end within {_TIMEOUT_S:g} s: {shlex.join(command)}") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise WorkError(f"profiling failed: {reason} (reproduce: {shlex.join(command)})")
    return done.stdout
