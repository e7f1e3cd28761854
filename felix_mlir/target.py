"""Targets a model can be tuned for, and the compiler flags each one stands for."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.errors import RequestError


@dataclass(frozen=True)
class Target:
    """A device kind as the user names it.

    `name` is the spelling on the command line, `compile_flags` what selects it in iree-compile, `device` the
    URI iree.runtime opens, `cores` how many hardware threads the device runs workgroups on.
    """

    name: str
    compile_flags: tuple[str, ...]
    device: str
    cores: int


def parse_target(name: str) -> Target:
    """Return the target called `name`; raises RequestError for one this version cannot tune."""
    if name == "cpu":
        return Target(
            name="cpu",
            compile_flags=(
                "--iree-hal-target-device=local",
                "--iree-hal-local-target-device-backends=llvm-cpu",
                "--iree-llvmcpu-target-cpu=host",
            ),
            device="local-task",
            cores=len(os.sched_getaffinity(0)),
        )
    raise RequestError(f"unknown target '{name}': this version tunes for 'cpu' (the machine it runs on)")


def host_name(target: Target) -> str:
    """Name the hardware that measurements depend on: processor model and cores, not the machine's own name."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in cpuinfo.read_text().splitlines())
        }
        keys = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
        model = " ".join(fields[key] for key in keys if fields.get(key)) or model
    return f"{model} x{target.cores}"
