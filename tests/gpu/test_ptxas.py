"""What the assembler says, and what follows from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from configured import compile_checked
from hypothesis import given
from hypothesis import strategies as st
from ops import matmul

from felix_mlir.cost.gpu_machine import read_gpu_machine
from felix_mlir.errors import WorkError
from felix_mlir.gpu import Assembled, KernelFigures, assemble, find_ptxas, kernel_figures, read_kernels
from felix_mlir.gpu import ptxas as ptxas_module
from felix_mlir.gpu.occupancy import workgroups_at_once
from felix_mlir.gpu.ptxas import read_listing
from felix_mlir.target import parse_target

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas here")
A100, ADA = read_gpu_machine("sm_80").limits, read_gpu_machine("sm_89").limits


def listing(name: str, made: Assembled) -> str:
    """Write what `ptxas -v` of CUDA 12 and 13 does; it leaves out what a kernel has none of."""
    smem = f", {made.shared_bytes} bytes smem" if made.shared_bytes else ""
    barriers = f", used {made.barriers} barriers" if made.barriers else ""
    return f"""ptxas info    : Compiling entry function '{name}' for 'sm_80'
ptxas info    : Function properties for {name}
    40 bytes stack frame, {made.spill_store_bytes} bytes spill stores, {made.spill_load_bytes} bytes spill loads
ptxas info    : Used {made.registers} registers{barriers}{smem}, 376 bytes cmem[0]
ptxas info    : Compile time = 78.891 ms
"""


@given(st.dictionaries(st.from_regex(r"[a-z_$][a-z0-9_$]{0,9}", fullmatch=True), st.builds(
    Assembled, *([st.integers(0, 1 << 18)] * 5)), max_size=4))  # fmt: skip
def test_listings_are_read_back(made):
    text = "ptxas info    : 0 bytes gmem\n" + "".join(listing(name, one) for name, one in made.items())
    assert read_listing(text) == made


def test_a_listing_without_registers_is_an_error():
    with pytest.raises(ValueError, match="how many registers kernel uses"):
        read_listing("ptxas info    : Compiling entry function 'kernel' for 'sm_80'\n")


@given(
    machine=st.sampled_from([A100, ADA]),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    shared_bytes=st.integers(0, 100_000),
)
def test_occupancy_is_what_filling_a_multiprocessor_gives(machine, threads, registers, shared_bytes):
    """Places workgroup after workgroup in a multiprocessor of four parts, each with its own registers."""
    warps = -(-threads // 32)
    free_warps = 4 * (machine.registers // 4 // (-(-registers * 32 // 256) * 256))
    free_threads, free_shared = machine.resident_threads, machine.shared_bytes
    shared = -(-(shared_bytes + 1024) // 128) * 128
    placed = 0
    while placed < machine.resident_workgroups:
        free_warps, free_threads, free_shared = free_warps - warps, free_threads - 32 * warps, free_shared - shared
        if min(free_warps, free_threads, free_shared) < 0:
            break
        placed += 1
    assert workgroups_at_once(machine, threads, registers, shared_bytes) == placed


def test_occupancy_of_known_kernels():
    # As CUDA's occupancy calculator has them.
    assert workgroups_at_once(A100, 256, 32, 0) == 8
    assert workgroups_at_once(A100, 256, 64, 0) == 4
    assert workgroups_at_once(A100, 128, 255, 0) == 2
    assert workgroups_at_once(A100, 128, 32, 49152) == 3
    assert workgroups_at_once(ADA, 1024, 32, 0) == 1
    assert workgroups_at_once(ADA, 32, 16, 0) == 24


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    (source := folder / "model.mlir").write_text(matmul(40, 24, 16))
    compile_checked(str(source), *parse_target("cuda:sm_80").compile_flags, "-o", str(folder / "model.vmfb"))
    return folder / "model.vmfb"


@needs_ptxas
def test_a_kernel_is_assembled_and_its_spills_count_against_it(module):
    ptxas = find_ptxas()
    ((name, figures),) = kernel_figures(module, "sm_80", A100, ptxas).items()
    assert figures.assembled is not None and 16 <= figures.assembled.registers <= 255
    assert figures.problem(A100.shared_bytes) == ""
    assert 0 < figures.occupancy <= 1
    (kernel,) = read_kernels(module)
    starved = kernel.ptx.replace(".maxntid", ".maxnreg 16\n.maxntid", 1)
    made = assemble(ptxas, starved, "sm_80")[name]
    assert made.registers < figures.assembled.registers
    assert made.spill_store_bytes > 0
    assert "spilled" in KernelFigures(kernel.threads, 0, made, 4, 0.5).problem(A100.shared_bytes)
    with pytest.raises(WorkError, match="ptxas"):
        assemble(ptxas, kernel.ptx.replace("ret;", "no_such_instruction;"), "sm_80")


def test_without_an_assembler_the_module_says_what_it_can(module):
    ((_, figures),) = kernel_figures(module, "sm_80", A100, None).items()
    assert figures.assembled is None
    assert figures.occupancy is None
    assert figures.problem(figures.shared_bytes) == ""
    assert "shared memory" in figures.problem(figures.shared_bytes - 1)


def test_a_workgroup_that_fits_nowhere_is_a_problem():
    made = Assembled(255, 0, 0, 0, 0)
    assert workgroups_at_once(A100, 1024, 255, 0) == 0
    assert "not even one" in KernelFigures((1024, 1, 1), 0, made, 0, 0.0).problem(1 << 18)


def test_the_assembler_is_that_on_path_else_that_of_pypi(tmp_path, monkeypatch):
    for folder in ("cuda_nvcc", "cu13"):
        (tool := tmp_path / "site" / "nvidia" / folder / "bin" / "ptxas").parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    for name in [name for name in sys.modules if name == "nvidia" or name.startswith("nvidia.")]:
        monkeypatch.delitem(sys.modules, name)
    assert find_ptxas() == tmp_path / "site" / "nvidia" / "cu13" / "bin" / "ptxas"
    (on_path := tmp_path / "ptxas").write_text("#!/bin/sh\n")
    on_path.chmod(0o755)
    assert find_ptxas() == on_path
    on_path.unlink()
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(ptxas_module, "find_spec", lambda name: None)
    assert find_ptxas() is None
