"""Running a function on tensors with upstream MLIR's passes and JIT, as shipped in torch-mlir."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import linalg
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager
from torch_mlir.runtime import get_ranked_memref_descriptor

_TO_BUFFERS = """builtin.module(
  func.func(scf-forall-to-for), canonicalize, cse, empty-tensor-to-alloc-tensor,
  one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},
  buffer-results-to-out-params{modify-public-functions=true}, canonicalize, cse)"""
_TO_LLVM = """builtin.module(
  convert-linalg-to-loops, expand-strided-metadata, lower-affine, convert-scf-to-cf, convert-math-to-llvm,
  convert-math-to-libm, convert-arith-to-llvm, finalize-memref-to-llvm, convert-func-to-llvm, convert-cf-to-llvm,
  reconcile-unrealized-casts)"""


def run_function(text: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Run a module's only function; its results are written to `outputs`, which give their shapes and types."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        function = module.body.operations[0]
        name = ir.StringAttr(function.attributes["sym_name"]).value
        function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        PassManager.parse(_TO_BUFFERS).run(module.operation)
        _expand_copies(module)
        PassManager.parse(_TO_LLVM).run(module.operation)
        engine = ExecutionEngine(module, opt_level=2)
        descriptors = [get_ranked_memref_descriptor(array) for array in (*inputs, *outputs)]
        engine.invoke(name, *(ctypes.pointer(ctypes.pointer(descriptor)) for descriptor in descriptors))


def _expand_copies(module: ir.Module) -> None:
    """A copy between strided buffers would need MLIR's runtime library, which torch-mlir does not ship."""
    copies: list[ir.Operation] = []

    def note(op: ir.Operation) -> ir.WalkResult:
        if op.name == "memref.copy":
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for op in copies:
        with ir.InsertionPoint(op):
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()
