"""What a measurement depends on besides the candidate: the machine's name, and the arguments."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .child import START_TIMEOUT_S, Stop

_DEVICE_NAME = """
import sys
sys.path[:] = filter(None, sys.path)  # Nothing in the current folder may stand in for a module.
from iree.runtime import get_driver
driver, _, path = sys.argv[1].partition("://")
devices = get_driver(driver).query_available_devices()
paths = [device["path"] for device in devices]
index = int(path) if path.isdecimal() else paths.index(path) if path else 0
print(devices[index]["name"])
"""


def host_name(device: str) -> str:
    """Name the hardware that measurements depend on; for a CPU as felix_mlir.target does, else the device's name.

    Raises Stop if there is no such device.
    """
    if device.startswith("local-"):
        return _processor()
    command = [sys.executable, "-c", _DEVICE_NAME, device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired:
        raise Stop(1, f"the device {device} does not answer") from None
    except subprocess.CalledProcessError as problem:
        lines = problem.stderr.strip().splitlines()
        raise Stop(1, f"the device {device} cannot be found: {lines[-1] if lines else ''}") from None
    return done.stdout.strip()


def _processor() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        pairs = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        keys = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
        model = " ".join(fields[key] for key in keys if fields.get(key)) or model
    # Not every system can bind a process to some of its cores.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model} x{cores}"


def random_inputs(inputs: list[dict[str, Any]], seed: int) -> list[np.ndarray]:
    """Return an array for each shape and dtype of a task: the ones felix_mlir.importers.random_inputs makes."""
    generator = np.random.default_rng(seed)
    return [_random_array(generator, tuple(i["shape"]), np.dtype(i["dtype"])) for i in inputs]


def _random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f" or dtype == ml_dtypes.bfloat16:
        return np.asarray(generator.standard_normal(shape), dtype)
    array = np.asarray(generator.integers(0, 2, shape), dtype)
    if array.size and not array.any():
        array.flat[generator.integers(array.size)] = 1
    return array
