"""Weights of an imported program: named in the IR, stored in an archive, never text."""

# torch_mlir.ir re-exports a C++ module that has no stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from iree.runtime import ParameterIndex
from torch_mlir import ir
from torch_mlir.extras.fx_importer import (
    TORCH_DTYPE_TO_MLIR_TYPE,
    FxImporterHooks,
    GraphNodeImporter,
    InputInfo,
)
from typing_extensions import override

from felix_mlir.importers.model import PARAMETER_SCOPE
from felix_mlir.importers.tensors import tensor_bytes

INLINE_LIMIT_BYTES = 256
"""Weights up to this size stay literals in the IR, where every pass can see their values.

Unsigned ones never do, nor booleans, which come as uint8: torch-mlir makes a literal of one element signed
and then rejects it.
"""


class WeightHooks(FxImporterHooks):
    """Has torch-mlir's importer name the weights of a program instead of writing out their values.

    Each weight above INLINE_LIMIT_BYTES becomes a global whose value is a parameter of scope PARAMETER_SCOPE.
    `weights` then holds it under its parameter name: the name of the module's parameter or buffer, or
    `.constant<n>`, which no module can use, for a tensor forward() makes.
    A tensor that several modules share is there once, under one of its names.

    The globals are `ml_program.global`, since torch-mlir's final check of its output accepts no operation of
    IREE's own; the input conversion of iree-compile turns them into `util.global`.
    """

    def __init__(self) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        self._module_body: ir.Block | None = None
        # Symbols by where the elements are, which `weights` keeps from being freed and used again.
        self._symbols: dict[tuple[object, ...], str] = {}

    @override
    def prepare_module(self, module_op: ir.Operation) -> None:
        self._module_body = module_op.regions[0].blocks[0]

    @override
    def resolve_literal(self, gni: GraphNodeImporter, literal: Any, info: InputInfo | None) -> ir.Value | None:
        if not isinstance(literal, torch.Tensor) or literal.dtype not in TORCH_DTYPE_TO_MLIR_TYPE:
            return None
        if literal.nbytes <= INLINE_LIMIT_BYTES and literal.dtype.is_signed:
            return None
        torch_element = TORCH_DTYPE_TO_MLIR_TYPE[literal.dtype]()
        element = torch_element
        if isinstance(torch_element, ir.IntegerType):  # Signs are a notion of torch's types only.
            element = ir.IntegerType.get_signless(torch_element.width)
        tensor_type = ir.RankedTensorType.get(list(literal.shape), element)
        shape = ",".join(str(size) for size in literal.shape)
        torch_type = ir.Type.parse(f"!torch.vtensor<[{shape}],{torch_element}>")
        load = ir.Operation.create(
            "ml_program.global_load_const",
            results=[tensor_type],
            attributes={"global": ir.FlatSymbolRefAttr.get(self._global_of(literal, tensor_type, info))},
        )
        return ir.Operation.create("torch_c.from_builtin_tensor", results=[torch_type], operands=[load.result]).result

    def _global_of(self, tensor: torch.Tensor, tensor_type: ir.Type, info: InputInfo | None) -> str:
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place not in self._symbols:
            target = None if info is None else info.input_spec.target
            name = target or f".constant{len(self.weights)}"
            self.weights[name] = tensor
            self._symbols[place] = self._add_global(name, tensor_type)
        return self._symbols[place]

    def _add_global(self, name: str, tensor_type: ir.Type) -> str:
        assert self._module_body is not None, "the importer calls prepare_module first"
        symbol = f"{PARAMETER_SCOPE}.{name}"  # The dot keeps it apart from @main.
        key = ir.StringAttr.get(name)  # Prints quoted and escaped.
        value = ir.Attribute.parse(f'#flow.parameter.named<"{PARAMETER_SCOPE}"::{key}> : {tensor_type}')
        ir.Operation.create(
            "ml_program.global",
            attributes={
                "sym_name": ir.StringAttr.get(symbol),
                "sym_visibility": ir.StringAttr.get("private"),
                "type": ir.TypeAttr.get(tensor_type),
                "value": value,
            },
            ip=ir.InsertionPoint.at_block_begin(self._module_body),
        )
        return symbol


def write_archive(weights: dict[str, torch.Tensor], path: Path) -> None:
    """Write the elements of each weight, in row-major order, to an .irpa archive under the weight's name."""
    index = ParameterIndex()
    for name, weight in weights.items():
        index.add_buffer(name, tensor_bytes(weight))
    index.create_archive_file(str(path))
