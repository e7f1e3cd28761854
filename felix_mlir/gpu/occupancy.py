"""How many workgroups of a kernel a multiprocessor holds at once, by what the assembler made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Importing it loads torch, which takes seconds.
    from felix_mlir.features import GpuMachineLimits

WARP = 32
# How compute capabilities 8.x share out a multiprocessor (CUDA's occupancy calculator): registers to a warp in units of
# so many and to four warps at a time, shared memory to a workgroup in units of so many bytes, of which the system takes
# some itself.
_REGISTER_UNIT = 256
_WARP_UNIT = 4
_SHARED_UNIT = 128
_RESERVED_SHARED_BYTES = 1024


def workgroups_at_once(machine: GpuMachineLimits, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many workgroups run on a multiprocessor at once; 0 if one alone does not fit.

    `registers` are a thread's, `shared_bytes` all of a workgroup.
    """
    warps = -(-threads // WARP)
    by_warps = machine.resident_threads // WARP // warps
    per_warp = _rounded_up(max(1, registers) * WARP, _REGISTER_UNIT)
    by_registers = machine.registers // per_warp // _WARP_UNIT * _WARP_UNIT // warps
    by_shared = machine.shared_bytes // _rounded_up(shared_bytes + _RESERVED_SHARED_BYTES, _SHARED_UNIT)
    return min(machine.resident_workgroups, by_warps, by_registers, by_shared)


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
