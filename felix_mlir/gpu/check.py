"""Static checks of a compiled module: what can be said of its kernels before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.errors import WorkError
from felix_mlir.gpu.kernels import Kernel, read_kernels
from felix_mlir.gpu.occupancy import WARP, workgroups_at_once
from felix_mlir.gpu.ptxas import Assembled, assemble
from felix_mlir.schedule.gpu_configuration import sizes_in

if TYPE_CHECKING:  # Importing it loads torch, which takes seconds.
    from felix_mlir.features import GpuMachineLimits


@dataclass(frozen=True)
class KernelFigures:
    """A kernel and, where there is an assembler, what became of it.

    `threads` and `shared_bytes` are those of a workgroup. `workgroups` run at once on a multiprocessor, which keeps
    the part `occupancy` of its warps busy.
    """

    threads: tuple[int, int, int]
    shared_bytes: int
    assembled: Assembled | None = None
    workgroups: int | None = None
    occupancy: float | None = None

    def problem(self, max_shared_bytes: int) -> str:
        """Return why a schedule with this kernel must not be used, in one line; "" if nothing is against it."""
        if self.shared_bytes > max_shared_bytes:
            return f"its workgroup takes {self.shared_bytes} bytes of shared memory, there are {max_shared_bytes}"
        if self.assembled and (self.assembled.spill_store_bytes or self.assembled.spill_load_bytes):
            stored, loaded = self.assembled.spill_store_bytes, self.assembled.spill_load_bytes
            return f"a thread needs more than its registers: {stored} bytes are spilled, {loaded} bytes reloaded"
        if self.workgroups == 0:
            return "not even one of its workgroups fits a multiprocessor"
        return ""


def kernel_figures(module: Path, arch: str, machine: GpuMachineLimits, ptxas: Path | None) -> dict[str, KernelFigures]:
    """Return the figures of every kernel of a compiled module for a chip (sm_80, say) and its limits, by name.

    Raises WorkError for a module whose kernels cannot be read, or that the assembler refuses.
    """
    try:
        kernels = read_kernels(module)
    except ValueError as error:
        raise WorkError(str(error)) from error
    # Linked kernels share one text.
    texts = dict.fromkeys(kernel.ptx for kernel in kernels)
    assembled = {ptx: assemble(ptxas, ptx, arch) for ptx in texts} if ptxas else {}
    return {kernel.name: _figures(kernel, assembled.get(kernel.ptx, {}), machine) for kernel in kernels}


def _figures(kernel: Kernel, assembled: Mapping[str, Assembled], machine: GpuMachineLimits) -> KernelFigures:
    made = assembled.get(kernel.name)
    if made is None:
        return KernelFigures(kernel.threads, kernel.shared_bytes)
    shared_bytes = kernel.shared_bytes + made.shared_bytes
    x, y, z = kernel.threads
    workgroups = workgroups_at_once(machine, x * y * z, made.registers, shared_bytes)
    warps = workgroups * -(-x * y * z // WARP)
    return KernelFigures(kernel.threads, shared_bytes, made, workgroups, warps * WARP / machine.resident_threads)


def landing_problem(kernel: Kernel, translation_info: str) -> str:
    """Return why generated code is not what a configuration asks for, in one line; "" if it is."""
    wanted = dict(sizes_in(translation_info)).get("workgroup_size")
    if wanted is None:
        return ""
    wanted = (*wanted, *(1,) * (3 - len(wanted)))
    if kernel.threads != wanted:
        return f"its code is launched with {_sizes(kernel.threads)} threads, not {_sizes(wanted)}"
    if kernel.declared_threads != wanted:
        declared = kernel.declared_threads
        return f"its PTX is made for {_sizes(declared) if declared else 'no number of'} threads, not {_sizes(wanted)}"
    return ""


def _sizes(threads: tuple[int, ...]) -> str:
    return "x".join(map(str, threads))
