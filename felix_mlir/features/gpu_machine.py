"""What features need to know of a GPU, as symbols in expressions and as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import sympy

from felix_mlir.features.machine import MachineLimits


@dataclass(frozen=True)
class GpuMachineLimits(MachineLimits):
    """A multiprocessor is a core, its vectors are what one load of a thread moves, its lines what memory transfers.

    `vector_registers` are those of one thread in such vectors; `l1_bytes` is a multiprocessor's unified memory, which
    `l2_bytes` repeats, and `l3_bytes` what all share (CUDA's L2). The others are of one multiprocessor: the threads and
    workgroups it holds at a time, its registers of 4 bytes, its shared memory and the banks of that.
    """

    resident_threads: int
    resident_workgroups: int
    registers: int
    shared_bytes: int
    shared_banks: int
    bank_bytes: int


# The symbol of each field of GpuMachineLimits.
GPU_MACHINE: Mapping[str, sympy.Symbol] = {
    field.name: sympy.Symbol(f"machine_{field.name}", integer=True, positive=True) for field in fields(GpuMachineLimits)
}
