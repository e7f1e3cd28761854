"""Timing compiled modules in turn with eager torch, and saying what was timed by what."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from felix_mlir.measure import Program, Runner

# Largest relative error of an output, with which its program is still timed.
TOLERANCE = 1e-4


def torch_runner(device: str) -> Runner:
    """Return a runner that takes what `in_torch` returns beside compiled modules, all in one process."""
    worker = Path(__file__).with_name("torch_worker.py")
    return Runner(device, (sys.executable, "-P", str(worker), "--device", device))


def in_torch(program: Program, name: str) -> Program:
    """Return the program that torch runs in place of `program`.

    `name` is an op of SIX_OPS, or file.py:function for a model.
    """
    return replace(program, function=f"torch:{name}")


def provenance(packages: Sequence[str]) -> dict[str, Any]:
    """Return the command that runs and the versions of `packages`, None where one is not installed."""
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
