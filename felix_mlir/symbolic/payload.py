"""The function a schedule tiles: the compute ops of a configured dispatch on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iree.compiler import ir

from felix_mlir.schedule import UnsupportedDispatchError, configured_functions
from felix_mlir.schedule.dispatch import LOWERING_CONFIG, ROOT_OP, TRANSLATION_INFO, compute_ops
from felix_mlir.symbolic.tags import COPY, KNOB, OP

_LOAD = "iree_codegen.load_from_buffer"
_STORE = "iree_codegen.store_to_buffer"
# What is left of addressing the dispatch's buffers once its loads and stores are gone.
_SUBSPAN = "hal.interface.binding.subspan"
_ADDRESSING = (
    _SUBSPAN,
    "memref.subview",
    "memref.expand_shape",
    "memref.collapse_shape",
    "memref.cast",
    "memref.assume_alignment",
    "arith.constant",
)


def payload(configured: Path | str, knobs: Sequence[str] = ()) -> str:
    """Return a module with one function on tensors: the compute ops of a configured dispatch, tagged by number.

    `configured` is a program at the executable-configurations phase (a file or its text). The function's arguments
    are the tensors the dispatch loads, its results those it stores, in the order of its bindings; what is a part of a
    larger buffer (the inside of a padded one) is a tensor of its own here. With `knobs` it is a symbolic payload: each
    knob's value is what a call to an external function of its name yields. Raises UnsupportedDispatchError.
    """
    text = configured.read_text() if isinstance(configured, Path) else configured
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(text, context)
        function = next(iter(configured_functions(module.operation).values()))
        for number, op in enumerate(compute_ops(function)):
            op.attributes[OP] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
            op.attributes[COPY] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
            if not op.results:
                _to_tensors(op)
        _loads_to_arguments(function)
        _stores_to_results(function)
        _remove_dead(function)
        for op in compute_ops(function):
            for name in (LOWERING_CONFIG, ROOT_OP):
                if name in op.attributes:
                    del op.attributes[name]
        del function.attributes[TRANSLATION_INFO]
        if knobs:
            _add_knobs(function, knobs)
        _set_type(function)
        holder = ir.Module.parse("\n".join(f"func.func private @{name}() -> index" for name in knobs))
        holder.body.append(function.detach_from_parent())
        holder.operation.verify()
        return holder.operation.get_asm(use_local_scope=True)


def _block(function: ir.Operation) -> ir.Block:
    return function.regions[0].blocks[0]


def _to_tensors(op: ir.Operation) -> None:
    """Let an op on buffers, such as a copy into a part of one, load and store them as those on tensors do."""
    if not op.name.startswith("linalg.") or len(op.opview.outputs) != 1:
        raise UnsupportedDispatchError(f"{op.name} on buffers has no counterpart on plain tensors")
    body = op.regions[0].blocks[0]
    *inputs, output = op.operands
    types = [_tensor_type(buffer) for buffer in op.operands]
    if any(body.arguments[len(inputs)].uses):
        raise UnsupportedDispatchError("it updates a buffer in place")
    with ir.InsertionPoint(op):
        loaded = [
            ir.Operation.create(_LOAD, results=[type_], operands=[buffer]).result
            for type_, buffer in zip(types[:-1], inputs, strict=True)
        ]
        empty = ir.Operation.create("tensor.empty", results=[types[-1]]).result
        attributes = {name: op.attributes[name] for name in op.attributes}
        on_tensors = ir.Operation.create(
            op.name, results=[types[-1]], operands=[*loaded, empty], attributes=attributes, regions=1
        )
        body.append_to(on_tensors.regions[0])
        ir.Operation.create(_STORE, operands=[on_tensors.result, output])
    op.erase()


def _tensor_type(buffer: ir.Value) -> ir.Type:
    if not isinstance(buffer.type, ir.MemRefType):
        raise UnsupportedDispatchError(f"an op on buffers reads a {buffer.type}")
    return ir.RankedTensorType.get(buffer.type.shape, buffer.type.element_type)


def _loads_to_arguments(function: ir.Operation) -> None:
    block = _block(function)
    loads = [op.operation for op in block if op.operation.name == _LOAD]
    for op in sorted(loads, key=lambda op: _binding(op.operands[0])):
        argument = block.add_argument(op.results[0].type, ir.Location.unknown())
        op.results[0].replace_all_uses_with(argument)
        op.erase()


def _stores_to_results(function: ir.Operation) -> None:
    block = _block(function)
    stores = [op.operation for op in block if op.operation.name == _STORE]
    values = [op.operands[0] for op in sorted(stores, key=lambda op: _binding(op.operands[1]))]
    for op in stores:
        op.erase()
    for value in values:
        # Producer fusion would leave such an op outside the loops too, and compute it twice.
        if len(list(value.uses)) > 0 and not isinstance(value.owner, ir.Block):
            raise UnsupportedDispatchError("it stores a tensor that another of its ops reads")
    terminator = list(block)[-1].operation
    with ir.InsertionPoint(terminator):
        ir.Operation.create("func.return", operands=values)
    terminator.erase()


def _binding(buffer: ir.Value) -> int:
    """The number of the binding a buffer belongs to."""
    while (op := buffer.owner.operation).name != _SUBSPAN:
        if op.name not in _ADDRESSING:
            raise UnsupportedDispatchError(f"the dispatch accesses a buffer through {op.name}")
        buffer = op.operands[0]
    return ir.IntegerAttr(op.attributes["binding"]).value


def _remove_dead(function: ir.Operation) -> None:
    for op in reversed([op.operation for op in _block(function)]):
        is_used = any(next(iter(result.uses), None) is not None for result in op.results)
        if op.name in _ADDRESSING:
            if not is_used:
                op.erase()
        elif op.name.split(".")[0] in ("hal", "iree_codegen", "iree_tensor_ext"):
            raise UnsupportedDispatchError(f"{op.name} has no counterpart on plain tensors")


def _add_knobs(function: ir.Operation, knobs: Sequence[str]) -> None:
    index = ir.IndexType.get()
    for name in reversed(knobs):
        with ir.InsertionPoint.at_block_begin(_block(function)):
            # A call, unlike a load, stays where no loop needs the size yet.
            ir.Operation.create(
                "func.call",
                results=[index],
                attributes={"callee": ir.FlatSymbolRefAttr.get(name), KNOB: ir.StringAttr.get(name)},
            )


def _set_type(function: ir.Operation) -> None:
    block = _block(function)
    results = [value.type for value in list(block)[-1].operation.operands]
    function_type = ir.FunctionType.get([argument.type for argument in block.arguments], results)
    function.attributes["function_type"] = ir.TypeAttr.get(function_type)
