"""What features need to know of the machine, as symbols in expressions and as values read from the host."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import sympy

_CPU = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
# Vector registers are named by the instruction set: (register bytes, registers) per feature flag, best first.
_X86_VECTORS = {"avx512f": (64, 32), "avx": (32, 16), "sse2": (16, 16)}
_OTHER_VECTORS = (16, 32)  # AArch64 Neon


class MachineError(RuntimeError):
    """The host does not say what is asked for; the message names the file."""


@dataclass(frozen=True)
class MachineLimits:
    """Hardware threads that run workgroups; bytes and number of vector registers; bytes of a cache line and of caches.

    `l1_bytes` and `l2_bytes` belong to one core, `l3_bytes` to all; a level the machine lacks repeats the one inside.
    """

    cores: int
    vector_bytes: int
    vector_registers: int
    line_bytes: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    def values(self) -> dict[str, int]:
        """Values of the symbols of `MACHINE`."""
        return {f"machine_{name}": value for name, value in asdict(self).items()}


# The symbol of each field of MachineLimits.
MACHINE: Mapping[str, sympy.Symbol] = {
    field.name: sympy.Symbol(f"machine_{field.name}", integer=True, positive=True) for field in fields(MachineLimits)
}
CACHES = ("l1", "l2", "l3")


def read_host(cores: int | None = None, vector_bytes: int | None = None) -> MachineLimits:
    """Read the limits of this machine.

    `cores` defaults to the threads this process may use, `vector_bytes` to the widest register the processor has (a
    compiler may choose narrower ones; pass what the target attribute says). Raises MachineError.
    """
    sizes: dict[int, int] = {}
    line = 0
    for index in sorted((_CPU / "cpu0" / "cache").glob("index*")):
        if _read(index / "type") != "Instruction":
            sizes[int(_read(index / "level"))] = _bytes(_read(index / "size"))
            line = int(_read(index / "coherency_line_size"))
    if 1 not in sizes:
        raise MachineError(f"{_CPU}/cpu0/cache names no data cache")
    widest, registers = _vectors()
    l2 = sizes.get(2, sizes[1])
    return MachineLimits(
        cores=cores or len(os.sched_getaffinity(0)),
        vector_bytes=vector_bytes or widest,
        vector_registers=registers,
        line_bytes=line,
        l1_bytes=sizes[1],
        l2_bytes=l2,
        l3_bytes=sizes.get(3, l2),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _vectors() -> tuple[int, int]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return _OTHER_VECTORS
    flags = set(next((line for line in _read(_CPUINFO).splitlines() if line.startswith("flags")), "").split())
    return next((size for flag, size in _X86_VECTORS.items() if flag in flags), _X86_VECTORS["sse2"])
