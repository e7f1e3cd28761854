"""What NVIDIA's assembler says of a kernel: registers, spills and shared memory, without a GPU."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from felix_mlir.compiler.process import run_compiler
from felix_mlir.errors import WorkError

_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Assembled:
    """What the assembler made of a kernel: registers and bytes of spills per thread, the rest per workgroup.

    `shared_bytes` is what the PTX declares itself; what a launch adds is in the kernel (`Kernel.shared_bytes`).
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    barriers: int


def find_ptxas() -> Path | None:
    """Return the assembler: that on PATH, else the one from PyPI; None where there is neither."""
    if on_path := shutil.which("ptxas"):
        return Path(on_path)
    packages = find_spec("nvidia")
    for location in (packages.submodule_search_locations or []) if packages else []:
        # nvidia-cuda-nvcc-cu12 puts it into cuda_nvcc/, nvidia-cuda-nvcc into a folder of the CUDA version.
        for found in sorted(Path(location).glob("*/bin/ptxas")):
            return found
    return None


def assemble(ptxas: Path, ptx: str, arch: str) -> dict[str, Assembled]:
    """Assemble PTX for a chip (sm_80, say) and return what became of each of its kernels, by name.

    Raises WorkError when the assembler refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="felix-ptx-") as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_text(ptx)
        command = (str(ptxas), "-v", f"--gpu-name={arch}", str(source), "-o", str(source.with_suffix(".cubin")))
        outcome = run_compiler(command, _TIMEOUT_S)
    if not outcome.ok:
        raise WorkError(f"ptxas: {outcome.message} ({shlex.join(outcome.command)})")
    return read_listing(outcome.stderr)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def read_listing(text: str) -> dict[str, Assembled]:
    """Read what `ptxas -v` prints; raises ValueError when it does not say the registers of a kernel."""
    _, *parts = _ENTRY.split(text)
    return {name: _assembled(name, about) for name, about in zip(parts[::2], parts[1::2], strict=True)}


def _assembled(name: str, about: str) -> Assembled:
    registers = re.search(r"Used (\d+) registers", about)
    if registers is None:
        raise ValueError(f"ptxas does not say how many registers {name} uses")
    spills = _SPILLS.search(about)
    return Assembled(
        registers=int(registers[1]),
        spill_store_bytes=int(spills[1]) if spills else 0,
        spill_load_bytes=int(spills[2]) if spills else 0,
        shared_bytes=_count(r"(\d+) bytes smem", about),
        barriers=_count(r"used (\d+) barriers", about),
    )


def _count(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
