"""Targets a model can be tuned for, and the compiler flags each one stands for."""

from __future__ import annotations

import os
from dataclasses import dataclass

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
