"""One dispatch of a model as a program of its own, with real tensors as arguments."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from iree.compiler import ir

_NUMPY_TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
                "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i1": np.bool_}  # fmt: skip


class IsolationError(Exception):
    """The dispatch cannot stand alone; the message is the reason a user reads."""


@dataclass(frozen=True)
class TensorType:
    """Shape and numpy type of one argument of an isolated program."""

    shape: tuple[int, ...]
    dtype: np.dtype


def isolate(module: ir.Module, executable: ir.Operation, call: ir.Operation) -> tuple[ir.Module, list[TensorType]]:
    """Return a program whose @main dispatches `executable` once, and the types of its arguments.

    `call` is one flow.dispatch of the executable in `module`; the arguments are its tensor operands in order
    (scalars the dispatch takes are kept as the constants they are). Raises IsolationError.
    """
    for result in call.results:
        _check(result.type)
    arguments: list[TensorType] = []
    lines: list[str] = []
    operands: list[str] = []
    # Tensors first: a dynamic shape shows as a scalar operand too, and is the better reason.
    for value in call.operands:
        if isinstance(value.type, ir.RankedTensorType):
            _check(value.type)
    for value in call.operands:
        name = f"%v{len(operands)}"
        operands.append(name)
        if isinstance(value.type, ir.RankedTensorType):
            arguments.append(tensor_type(value.type))
            lines.append(f"{name} = hal.tensor.import %arg{len(arguments) - 1} : !hal.buffer_view -> {value.type}")
        else:
            lines.append(f"{name} = {_constant(value)}")
    tied = _tied_operands(call)
    result_types = [str(result.type) for result in call.results]
    results = [operands[operand] if operand >= 0 else type_ for operand, type_ in zip(tied, result_types, strict=True)]
    names = [f"%r{i}" for i in range(len(results))]
    entry = str(ir.ArrayAttr(call.attributes["entry_points"])[0])
    lines.append(
        f"{', '.join(names)} = flow.dispatch {entry}({', '.join(operands)}) : "
        f"({', '.join(str(v.type) for v in call.operands)}) -> ({', '.join(results)})"
    )
    exports = [f"%e{i}" for i in range(len(results))]
    lines += [
        f"{export} = hal.tensor.export {name} : {type_} -> !hal.buffer_view"
        for export, name, type_ in zip(exports, names, result_types, strict=True)
    ]
    lines.append(f"util.return {', '.join(exports)} : {', '.join(['!hal.buffer_view'] * len(exports))}")
    return _program(module, executable, entry, len(arguments), len(exports), lines), arguments


def _program(
    module: ir.Module, executable: ir.Operation, entry: str, arguments: int, results: int, lines: list[str]
) -> ir.Module:
    executable_name, export_name = entry.split("::")
    signature = ", ".join(f"%arg{i}: !hal.buffer_view" for i in range(arguments))
    returned = ", ".join(["!hal.buffer_view"] * results)
    body = "\n    ".join(lines)
    # The stub executable only lets the call's symbol resolve while the text is parsed.
    skeleton = ir.Module.parse(
        f"""module {{
  flow.executable private {executable_name} {{
    flow.executable.export public {export_name}
    builtin.module {{}}
  }}
  util.func public @main({signature}) -> ({returned}) attributes {{iree.abi.stub}} {{
    {body}
  }}
}}""",
        module.context,
    )
    main = skeleton.body.operations[1]
    program = ir.Module.parse("module {}", module.context)
    for name, attribute in module.operation.attributes.items():
        program.operation.attributes[name] = attribute
    point = ir.InsertionPoint(program.body)
    for op in module.body.operations:
        if op.operation.name == "util.global" and str(op.operation.attributes["type"]) == "!hal.device":
            op.operation.clone(point)
    executable.clone(point)
    main.operation.clone(point)
    return program


def _check(type_: ir.RankedTensorType) -> None:
    if not type_.has_static_shape:
        raise IsolationError("it handles tensors of dynamic shape; only static shapes are tuned")
    if type_.encoding is not None:
        raise IsolationError("it handles tensors whose packed layout is not decided yet (data tiling)")


def tensor_type(type_: ir.RankedTensorType) -> TensorType:
    """Return shape and numpy type of a tensor; raises IsolationError for one numpy cannot hold."""
    _check(type_)
    dtype = _NUMPY_TYPES.get(str(type_.element_type))
    if dtype is None:
        raise IsolationError(f"numpy has no type for elements of {type_.element_type}")
    return TensorType(tuple(type_.shape), np.dtype(dtype))


def _constant(value: ir.Value) -> str:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        raise IsolationError(f"it takes a {value.type} that is computed at run time")
    return f"arith.constant {owner.attributes['value']}"


def _tied_operands(call: ir.Operation) -> list[int]:
    """Per result, the operand whose storage it is written to, or -1."""
    if "tied_operands" not in call.attributes:
        return [-1] * len(call.results)
    return [ir.IntegerAttr(index).value for index in ir.ArrayAttr(call.attributes["tied_operands"])]
