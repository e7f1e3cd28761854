"""The transform ops that tell whether a function is a given dispatch, written from a configured example of it.

Ops are compared one by one, from the stores upwards. `transform.iree.match.cast_compatible_dag_from_root` over a single
op compares its name, attributes, operand types and body; it does not say which result of a producer is used, nor
that two ops of a pattern are two. So each operand is followed to the op that makes it, an op reached twice must be the
same both times, and ops are counted. In which buffer operands lie and how independent ops are ordered does not matter.

A body that uses a value from outside, a constant say, cannot be compared as a region. What it yields is compared as
an expression then: all but which of two arguments of equal type is which.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from felix_mlir.passes.transform_script import Script
from felix_mlir.schedule.dispatch import LOWERING_CONFIG, ROOT_OP, walk

_LOAD, _STORE = "iree_codegen.load_from_buffer", "iree_codegen.store_to_buffer"
_SUBVIEW, _CONSTANT, _EMPTY, _INDEX = "memref.subview", "arith.constant", "tensor.empty", "linalg.index"
_TENSOR_LOAD, _TENSOR_STORE = "iree_tensor_ext.dispatch.tensor.load", "iree_tensor_ext.dispatch.tensor.store"
_BINDING, _ALIGNED = "hal.interface.binding.subspan", "memref.assume_alignment"
_CHOSEN = (LOWERING_CONFIG, ROOT_OP)


class UncarriedError(Exception):
    """A transform library cannot carry the dispatch; the message says why."""


def is_cpu(function: ir.Operation) -> bool:
    """Say whether a dispatch function is for the CPU."""
    return '"llvm-cpu"' in str(_ancestor(function, "hal.executable.variant").attributes["target"])


class Finder:
    """Writes the ops that follow a dispatch from its stores to everything it is made of.

    The function is as the compiler configured it; what the ops run on is a little earlier. On the CPU, loads and stores
    are not of buffers yet.
    """

    def __init__(self, script: Script, function: ir.Operation) -> None:
        self._script = script
        self._function = function
        self._is_cpu = is_cpu(function)
        self._handles: dict[ir.Operation, ir.Value] = {}
        self._pending: list[ir.Operation] = []

    def find(self, wanted: Sequence[ir.Operation]) -> list[ir.Value]:
        """Follow the dispatch in the function the script is run on; returns handles to the ops `wanted`."""
        root = self._script.argument
        ends = self._ends()
        handles = self._script.split(self._matching(root, {op.name for op in ends}), len(ends))
        for op, handle in zip(ends, handles, strict=True):
            self._add(op, handle)
        while self._pending:
            self._visit(self._pending.pop(0))
        for op in wanted:
            if op not in self._handles:
                raise UncarriedError(f"no operand leads to its {op.name}")
        # Two ops here must not be one op of the function.
        for names in ({op.name for op in self._handles} - {_LOAD}, {_LOAD} & {op.name for op in self._handles}):
            if names:
                number = sum(op.name in names for op in walk(self._function))
                self._script.check_count(self._matching(root, names), number)
        return [self._handles[op] for op in wanted]

    def _ends(self) -> list[ir.Operation]:
        """Return the ops that write the results: stores of tensors or, in a copy, a linalg op on buffers."""
        ends = [op.operation for op in self._function.regions[0].blocks[0] if not list(op.operation.results)][:-1]
        names = {op.name for op in ends}
        others = names - {_STORE} if _STORE in names else {name for name in names if not name.startswith("linalg.")}
        if others or not ends:
            raise UncarriedError(f"it ends in {', '.join(sorted(others)) or 'nothing'}")
        return ends

    def _matching(self, root: ir.Value, names: set[str]) -> ir.Value:
        return self._script.matching(root, sorted(self._name(name) for name in names))

    def _name(self, name: str) -> str:
        return {_LOAD: _TENSOR_LOAD, _STORE: _TENSOR_STORE}.get(name, name) if self._is_cpu else name

    def _add(self, op: ir.Operation, handle: ir.Value) -> None:
        self._handles[op] = handle
        self._pending.append(op)

    def _visit(self, op: ir.Operation) -> None:
        handle = self._handles[op]
        if self._is_cpu and op.name in (_LOAD, _STORE):
            self._check_transfer(op, handle)
        else:
            self._check(op, handle)
        for number, operand in enumerate(op.operands):
            if not self._is_cpu or op.name not in (_LOAD, _STORE) or isinstance(operand.type, ir.RankedTensorType):
                self._follow(operand, handle, number)

    def _follow(self, value: ir.Value, user: ir.Value, number: int) -> None:
        """Go from a user, by its operand of this number, to what makes the operand."""
        if isinstance(value.owner, ir.Block):
            return
        op = value.owner.operation
        handle = self._script.producer(user, number)
        if op.name == _BINDING:
            # Where in which buffer an operand lies depends on the model around the dispatch, and shows in its type.
            self._script.check_name(handle, op.name)
            self._script.check_shape(user, number, ir.MemRefType(value.type).shape)
        elif op.name == _ALIGNED:
            self._script.check_name(handle, op.name)
            self._follow(op.operands[0], handle, 0)
        elif op.name in (_EMPTY, _CONSTANT):
            # Whether two users share one of these or have one each makes no difference.
            self._check(op, handle)
        elif op in self._handles:
            self._script.check_distinct([self._handles[op], handle], 1)
        else:
            self._add(op, handle)
        if len(op.results) > 1:
            result = self._script.result(handle, ir.OpResult(value).result_number)
            self._script.check_distinct([result, self._script.operand(user, number)], 1)

    def _check(self, op: ir.Operation, handle: ir.Value) -> None:
        """Compare one op, without the ops that make its operands."""
        uses_outside = _uses_outside(op)
        has_buffers = any(isinstance(operand.type, ir.MemRefType) for operand in op.operands)
        if op.name == _EMPTY or (op.name == _CONSTANT and isinstance(op.results[0].type, ir.ShapedType)):
            # Weights small enough to be in the dispatch are data, not structure.
            self._script.check_name(handle, op.name)
            return
        if list(op.regions) and not uses_outside and not has_buffers:
            self._script.check_ops(handle, [op], list(dict.fromkeys(op.operands)), _CHOSEN)
            return
        attributes = {name: op.attributes[name] for name in op.attributes if name not in _CHOSEN}
        types = [] if has_buffers else [operand.type for operand in op.operands]
        self._script.split(self._script.matching(handle, [op.name], attributes, types), 1)
        if uses_outside:
            self._check_body(op, handle)
        elif list(op.regions):
            self._script.check_regions(handle, op, _CHOSEN)

    def _check_transfer(self, op: ir.Operation, handle: ir.Value) -> None:
        """Compare which part of what kind of binding is loaded or stored, while that is of tensors."""
        binding, part = _binding_of(op.operands[len(op.operands) - 1])
        types = [value.type for value in op.operands if isinstance(value.type, ir.RankedTensorType)]
        name = self._name(op.name)
        self._script.split(self._script.matching(handle, [name], part, [*types, _dispatch_tensor(binding)]), 1)

    def _check_body(self, op: ir.Operation, handle: ir.Value) -> None:
        """Compare what an op yields where its body uses values from outside, which comparing regions cannot do."""
        body = list(walk(op))[1:]
        if len(op.regions) != 1 or len(list(op.regions[0])) != 1 or any(list(inner.regions) for inner in body):
            raise UncarriedError(f"its {op.name} has nested regions that use values from outside")
        end = self._script.split(self._script.matching(handle, [body[-1].name]), 1)[0]
        used: dict[ir.Value, None] = {}
        inputs: list[ir.Value] = []
        for number, value in enumerate(body[-1].operands):
            if isinstance(value.owner, ir.Block):
                leaves, handles = [value], [self._script.operand(end, number)]
            else:
                leaves, handles = self._check_expression(value, end, number, body)
            used |= dict.fromkeys(leaves)
            inputs += handles
        if len(inputs) > 1:
            self._script.check_distinct(inputs, len(used))

    def _check_expression(
        self, value: ir.Value, user: ir.Value, number: int, body: Sequence[ir.Operation]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Compare what makes an operand down to the arguments of the body and what lies outside.

        Returns these values, and the handle to them if there are any.
        """
        pattern: dict[ir.Operation, None] = {}
        leaves: dict[ir.Value, tuple[int, ...]] = {}

        def collect(value: ir.Value, path: tuple[int, ...]) -> None:
            op = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if op is None or not _is_scalar_op(op, body):
                leaves.setdefault(value, path)
            elif op not in pattern:
                for position, operand in enumerate(op.operands):
                    collect(operand, (*path, position))
                pattern[op] = None

        collect(value, (number,))
        inputs: list[ir.Value] = []
        if pattern:
            inputs = [self._script.check_ops(self._script.producer(user, number), list(pattern), list(leaves))]
        for leaf, path in leaves.items():
            if isinstance(leaf.owner, ir.Block):
                continue
            handle = user
            for position in path[:-1]:
                handle = self._script.producer(handle, position)
            self._follow(leaf, handle, path[-1])
        if len(leaves) > 1:
            self._script.check_distinct(inputs, len(leaves))
        return list(leaves), inputs if leaves else []


def _is_scalar_op(op: ir.Operation, body: Sequence[ir.Operation]) -> bool:
    if op.name == _CONSTANT:
        return not isinstance(op.results[0].type, ir.ShapedType)
    return op in body and op.name != _INDEX


def _uses_outside(op: ir.Operation) -> bool:
    """Say whether the regions of an op use values made outside them."""
    inside = set(walk(op))
    values = (value for inner in inside - {op} for value in inner.operands)
    return any((v.owner.owner if isinstance(v.owner, ir.Block) else v.owner).operation not in inside for v in values)


def _binding_of(buffer: ir.Value) -> tuple[ir.Operation, dict[str, ir.Attribute]]:
    """Return the binding a buffer is in, and the attributes that say which part of it, as loads and stores have."""
    op = buffer.owner.operation
    if op.name == _SUBVIEW and len(op.operands) == 1:
        binding = op.operands[0].owner.operation
        part = {name: op.attributes[name] for name in ("static_offsets", "static_sizes", "static_strides")}
    else:
        binding = op
        shape = ir.MemRefType(buffer.type).shape
        parts = {"static_offsets": [0] * len(shape), "static_sizes": shape, "static_strides": [1] * len(shape)}
        part = {name: ir.DenseI64ArrayAttr.get(values) for name, values in parts.items()}
    if binding.name != _BINDING:
        raise UncarriedError(f"it reaches a buffer through {binding.name}")
    return binding, part


def _dispatch_tensor(binding: ir.Operation) -> ir.Type:
    """Return the type a binding has while loads and stores are of tensors: what stores a part must keep the rest."""
    memref = ir.MemRefType(binding.results[0].type)
    parts = {use.owner for use in binding.results[0].uses if use.owner.name == _SUBVIEW}
    accesses = {use.owner.name for op in (binding, *parts) for use in op.results[0].uses} - {_SUBVIEW}
    stores_part = any(use.owner.name == _STORE for part in parts for use in part.results[0].uses)
    access = "readonly" if accesses == {_LOAD} else "readwrite" if _LOAD in accesses or stores_part else "writeonly"
    tensor = ir.RankedTensorType.get(memref.shape, memref.element_type)
    return ir.Type.parse(f"!iree_tensor_ext.dispatch.tensor<{access}:{tensor}>")


def _ancestor(op: ir.Operation, name: str) -> ir.Operation:
    while op.name != name:
        op = op.parent.operation
    return op
