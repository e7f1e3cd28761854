"""Checking CUDA code without a GPU: the kernels in a compiled module, and what the assembler makes of them.

Contract: nothing here runs a kernel. `kernel_figures` reads registers, spills, shared memory and occupancy where
`find_ptxas` finds NVIDIA's assembler, and what the module itself says where it does not. Bytes and registers are
counts, occupancy is a part of 1. Errors: WorkError for a module or PTX that cannot be read.
"""

from __future__ import annotations

from felix_mlir.gpu.check import KernelFigures, kernel_figures, landing_problem
from felix_mlir.gpu.kernels import Kernel, read_kernels
from felix_mlir.gpu.occupancy import workgroups_at_once
from felix_mlir.gpu.ptxas import Assembled, assemble, find_ptxas

__all__ = [
    "Assembled",
    "Kernel",
    "KernelFigures",
    "assemble",
    "find_ptxas",
    "kernel_figures",
    "landing_problem",
    "read_kernels",
    "workgroups_at_once",
]
