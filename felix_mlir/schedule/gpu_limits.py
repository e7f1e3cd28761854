"""What `#iree_gpu.target` says of the machine a dispatch is compiled for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from iree.compiler import ir

from felix_mlir.schedule.dispatch import UnsupportedDispatchError, executable_target


@dataclass(frozen=True)
class GpuLimits:
    """Limits of one workgroup, and what the target says of the chip (None where it does not).

    `arch` is the chip's name; `max_workgroup_sizes` are the threads along x, y and z, `max_threads` of all
    together; `intrinsics` names the matrix instructions.
    """

    arch: str
    max_threads: int
    max_workgroup_sizes: tuple[int, ...]
    workgroup_memory_bytes: int
    subgroup_sizes: tuple[int, ...]
    intrinsics: tuple[str, ...]
    max_load_instruction_bits: int | None = None

    @property
    def threads_along_x(self) -> int:
        """The most threads of a workgroup that has all of them along x."""
        return min(self.max_threads, self.max_workgroup_sizes[0])


def is_gpu_module(module: ir.Operation) -> bool:
    """Whether a configured module is compiled for a GPU."""
    return "#iree_gpu.target<" in executable_target(module)


def gpu_limits(module: ir.Operation) -> GpuLimits:
    """Read the limits from the executable target of a configured module.

    Raises UnsupportedDispatchError when it has no `#iree_gpu.target` or one that leaves a limit out.
    """
    text = executable_target(module)

    def optional(key: str) -> int | None:
        match = re.search(rf"\b{key} = (\d+)", text)
        return int(match.group(1)) if match else None

    def number(key: str) -> int:
        if (value := optional(key)) is None:
            raise UnsupportedDispatchError(f"the executable target does not say its {key}")
        return value

    def numbers(key: str) -> tuple[int, ...]:
        match = re.search(rf"\b{key} = \[([\d, ]*)\]", text)
        if match is None:
            raise UnsupportedDispatchError(f"the executable target does not say its {key}")
        return tuple(int(value) for value in match.group(1).split(","))

    arch = re.search(r'\barch = "([^"]*)"', text)
    intrinsics = re.search(r"\bmma = \[([^\]]*)\]", text)
    return GpuLimits(
        arch=arch.group(1) if arch else "",
        max_threads=number("max_thread_count_per_workgroup"),
        max_workgroup_sizes=numbers("max_workgroup_sizes"),
        workgroup_memory_bytes=number("max_workgroup_memory_bytes"),
        subgroup_sizes=numbers("subgroup_size_choices"),
        intrinsics=tuple(re.findall(r"<(\w+)>", intrinsics.group(1))) if intrinsics else (),
        max_load_instruction_bits=optional("max_load_instruction_bits"),
    )
