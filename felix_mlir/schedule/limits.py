"""What the executable target of a compiled module says of the machine."""

from __future__ import annotations

import re

from iree.compiler import ir

from felix_mlir.schedule.cpu import CpuLimits
from felix_mlir.schedule.dispatch import UnsupportedDispatchError, executable_target


def cpu_limits(module: ir.Operation) -> CpuLimits:
    """Read the machine's limits from the executable target of a configured module."""
    target = executable_target(module)

    def number(key: str) -> int:
        match = re.search(rf"\b{key} = (\d+)", target)
        if match is None:
            raise UnsupportedDispatchError(f"the executable target does not say its {key}")
        return int(match.group(1))

    return CpuLimits(number("native_vector_size"), number("max_stack_allocation_size"))
