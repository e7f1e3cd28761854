"""Kernels in compiled modules: what is read of them is what the compiler says before it serialises them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from configured import compile_checked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops import row_sums

from felix_mlir.gpu import Kernel, landing_problem, read_kernels
from felix_mlir.target import parse_target

CUDA = parse_target("cuda:sm_80")
# A module of two dispatches, one of which promotes operands to shared memory.
TWO = """
func.func @main(%a: tensor<64x96xf16>, %b: tensor<96x128xf16>) -> tensor<128x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
  %c = linalg.matmul ins(%a, %b : tensor<64x96xf16>, tensor<96x128xf16>)
      outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  %turned = tensor.empty() : tensor<128x64xf32>
  %t = linalg.transpose ins(%c : tensor<64x128xf32>) outs(%turned : tensor<128x64xf32>) permutation = [1, 0]
  return %t : tensor<128x64xf32>
}
"""


def compiled(mlir: str, folder: Path, *flags: str) -> Path:
    (source := folder / "model.mlir").write_text(mlir)
    output = folder / "model.out"
    compile_checked(str(source), *flags, "-o", str(output))
    return output


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    return compiled(TWO, tmp_path_factory.mktemp("cuda"), *CUDA.compile_flags)


def test_kernels_are_those_of_the_ir(module, tmp_path):
    text = compiled(TWO, tmp_path, *CUDA.compile_flags, "--compile-to=executable-targets").read_text()
    exports = re.findall(r"hal\.executable\.export public @(\w+)", text)
    ends = re.findall(r"<workgroup_size = \[([^\]]*)\](.*)", text)
    kernels = read_kernels(module)
    assert [kernel.name for kernel in kernels] == exports
    for kernel, (sizes, rest) in zip(kernels, ends, strict=True):
        assert kernel.threads == tuple(int(size.split(":")[0]) for size in sizes.split(","))
        shared = re.search(r"workgroup_local_memory = (\d+)", rest)
        assert kernel.shared_bytes == (int(shared[1]) if shared else 0)
        assert kernel.declared_threads == kernel.threads
        assert ".target sm_80" in kernel.ptx


def test_a_module_for_the_processor_has_none(tmp_path):
    assert read_kernels(compiled(row_sums(8, 16), tmp_path, *parse_target("cpu").compile_flags)) == []


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_executable_is_an_error_and_nothing_else(module, tmp_path, data):
    content = bytearray(module.read_bytes())
    start = content.index(b"CDA1")
    # The tables lie at the beginning of the executable, before the text of the kernels.
    for _ in range(data.draw(st.integers(1, 4))):
        content[start + data.draw(st.integers(0, 800))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(start, len(content)))
    (path := tmp_path / "damaged.vmfb").write_bytes(content[:end])
    try:
        kernels = read_kernels(path)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert all(isinstance(kernel, Kernel) for kernel in kernels)


def test_what_was_not_configured_did_not_land(module):
    kernel = next(kernel for kernel in read_kernels(module) if "matmul" in kernel.name)
    x, y, z = kernel.threads
    info = "#iree_codegen.translation_info<pipeline = None workgroup_size = [{}] subgroup_size = 32>"
    assert landing_problem(kernel, info.format(f"{x}, {y}, {z}")) == ""
    assert "threads, not" in landing_problem(kernel, info.format(f"{2 * x}, {y}, {z}"))
    other = Kernel(kernel.name, kernel.ptx.replace(f".maxntid {x},", f".maxntid {2 * x},"), kernel.threads, 0)
    assert "its PTX is made for" in landing_problem(other, info.format(f"{x}, {y}, {z}"))
    without = Kernel(kernel.name, kernel.ptx.replace(".maxntid", ".minnctapersm"), kernel.threads, 0)
    assert "no number of threads" in landing_problem(without, info.format(f"{x}, {y}, {z}"))
    assert landing_problem(kernel, "#iree_codegen.translation_info<pipeline = None>") == ""
