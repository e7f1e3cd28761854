"""Targets a model can be tuned for, and the compiler flags each one stands for."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from felix_mlir.errors import RequestError

# What the compiler knows by these names.
_CUDA = ("cuda:sm_80", "cuda:sm_86", "cuda:sm_89")
# Newer chips run code for the last one: their driver translates its PTX.
_NEWER = re.compile(r"cuda:sm_(\d+)[af]?")
_FIRST_NEWER = 90

_DEVICES_TIMEOUT_S = 60.0
_LIST_DEVICES = """
import json, sys
from iree.runtime import get_driver
try:
    names = [device["name"] for device in get_driver(sys.argv[1]).query_available_devices()]
except (RuntimeError, ValueError):
    names = []
print(json.dumps(names))
"""


@dataclass(frozen=True)
class Target:
    """A device kind as the user names it.

    `name` is the spelling on the command line, `compile_flags` what selects it in iree-compile, `device` the
    URI iree.runtime opens, `cores` how many hardware threads this machine has. `note` says that it stands for another
    target than the one asked for; "" if it does not.
    """

    name: str
    compile_flags: tuple[str, ...]
    device: str
    cores: int
    note: str = ""

    @property
    def has_profiler(self) -> bool:
        """Whether IREE can say what each dispatch takes inside a running model; its CUDA driver cannot."""
        return self.device.startswith("local-")


def parse_target(name: str) -> Target:
    """Return the target called `name`; raises RequestError for one there is not."""
    cores = len(os.sched_getaffinity(0))
    if name == "cpu":
        return Target(
            name="cpu",
            compile_flags=(
                "--iree-hal-target-device=local",
                "--iree-hal-local-target-device-backends=llvm-cpu",
                "--iree-llvmcpu-target-cpu=host",
            ),
            device="local-task",
            cores=cores,
        )
    if name in _CUDA:
        chip = name.removeprefix("cuda:")
        flags = ("--iree-hal-target-device=cuda", f"--iree-cuda-target={chip}")
        return Target(name, flags, "cuda", cores)
    newer = _NEWER.fullmatch(name)
    if newer and int(newer[1]) >= _FIRST_NEWER:
        return replace(
            parse_target(_CUDA[-1]), note=f"{name} runs code for {_CUDA[-1]}: the compiler knows no newer one"
        )
    known = ", ".join(("cpu (the machine it runs on)", *_CUDA))
    raise RequestError(f"unknown target '{name}': there are {known}, and newer chips by their own name")


def measurable_target(name: str) -> Target:
    """Return the target called `name`; raises RequestError where there is none, or this machine has no device of it."""
    target = parse_target(name)
    if not device_names(target):
        raise RequestError(
            f"this machine has no {target.device} device to measure {name} on: measure on one that has with felix-mlir "
            "bundle make, or choose schedules without measuring with felix-mlir tune --no-measure"
        )
    return target


@cache
def device_names(target: Target) -> tuple[str, ...]:
    """Return what the devices of a target that this machine has are called; device i is `<target.device>://i`.

    The processor is one device.
    """
    if target.device.startswith("local-"):
        return (_processor(target.cores),)
    # In a child: what a broken driver does, this process must survive.
    command = [sys.executable, "-P", "-c", _LIST_DEVICES, target.device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEVICES_TIMEOUT_S, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return ()
    return tuple(json.loads(done.stdout))


def measuring_devices(target: Target) -> tuple[str, ...]:
    """Return URIs of the devices to measure on at the same time: the first one and all others of its model.

    Where there is none it is the target's own, which does not open.
    """
    names = device_names(target)
    alike = [number for number, name in enumerate(names) if name == names[0]]
    return tuple(f"{target.device}://{number}" for number in alike) if len(alike) > 1 else (target.device,)


def host_name(target: Target) -> str:
    """Name the hardware that measurements depend on: processor model and cores, or the first device's model.

    Where there is no device, nothing depends on it, and it is the processor's.
    """
    return next(iter(device_names(target)), _processor(target.cores))


def _processor(cores: int) -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in cpuinfo.read_text().splitlines())
        }
        keys = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
        model = " ".join(fields[key] for key in keys if fields.get(key)) or model
    return f"{model} x{cores}"
