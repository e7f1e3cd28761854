"""Which buffer a tensor value of tiled IR stands for.

Tensors are values, so what counts as one buffer is a choice: an op that writes into what another op made (its
destination) shares that op's buffer, across loops; every other op starts one.
"""

from __future__ import annotations

import sympy
from iree.compiler import ir

from felix_mlir.schedule import Dispatch
from felix_mlir.symbolic.nest import Buffer
from felix_mlir.symbolic.sizes import ReadError, Sizes, forall_rank, initial_value, segments
from felix_mlir.symbolic.tags import OP

_VIEWS = ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


class Buffers:
    """Names the buffers of one tiled function; the same value always gives the same buffer."""

    def __init__(self, function: ir.Operation, dispatch: Dispatch, sizes: Sizes) -> None:
        self._dispatch = dispatch
        self._sizes = sizes
        self._starts: list[tuple[ir.Operation, Buffer]] = []
        terminator = list(function.regions[0].blocks[0])[-1].operation
        self._results = [self._start(_writer(value)) for value in terminator.operands]

    def of(self, value: ir.Value) -> Buffer:
        """The buffer that a tensor value lies in."""
        if isinstance(value.owner, ir.Block):
            init = initial_value(value)
            if init is not None:
                return self.of(init)
            return self._buffer(f"arg{ir.BlockArgument(value).arg_number}", value, _shape(value), False)
        op = value.owner.operation
        if op.name in _VIEWS:
            source = self.of(op.operands[0])
            # A reshape is the same memory under another shape; a slice is part of what it is cut from.
            is_slice = op.name == "tensor.extract_slice"
            return source if is_slice else Buffer(source.name, _shape(value), source.element_bytes, source.is_temporary)
        return self.written_by(_writer(value))

    def written_by(self, op: ir.Operation) -> Buffer:
        """The buffer that an op's result lies in."""
        op = self._start(op)
        for known, buffer in self._starts:
            if known == op:
                return buffer
        is_temporary = op not in self._results
        value = op.results[0]
        out = segments(op)[1][0] if OP in op.attributes else value
        rank = ir.RankedTensorType(out.type).rank
        shape = tuple(self._sizes.dim(out, index) for index in range(rank))
        name = f"{op.name.split('.')[-1]}"
        if OP in op.attributes:
            number = ir.IntegerAttr(op.attributes[OP]).value
            name = f"op{number}"
            if not is_temporary:
                written = next(o for o in self._dispatch.ops[number].operands if o.is_output)
                shape = tuple(sympy.Integer(size) for size in written.shape)
        copies = sum(buffer.name.split("_")[0] == name for _, buffer in self._starts)
        buffer = self._buffer(f"{name}_{copies}" if copies else name, value, shape, is_temporary)
        self._starts.append((op, buffer))
        return buffer

    def _start(self, op: ir.Operation) -> ir.Operation:
        """The first op of the chain of ops that write into one another's results."""
        while op.name.startswith("linalg."):
            value = segments(op)[1][0]
            while isinstance(value.owner, ir.Block) or value.owner.operation.name == "tensor.extract_slice":
                owner = value.owner
                init = initial_value(value) if isinstance(owner, ir.Block) else owner.operation.operands[0]
                if init is None:
                    return op
                value = init
            before = _writer(value)
            if not before.name.startswith("linalg."):
                return op
            op = before
        return op

    @staticmethod
    def _buffer(name: str, value: ir.Value, shape: tuple[sympy.Expr, ...], is_temporary: bool) -> Buffer:
        element = ir.RankedTensorType(value.type).element_type
        bits = element.width if isinstance(element, (ir.IntegerType, ir.FloatType)) else 64
        return Buffer(name, shape, -(-bits // 8), is_temporary)


def _shape(value: ir.Value) -> tuple[sympy.Expr, ...]:
    return tuple(sympy.Integer(size) for size in ir.RankedTensorType(value.type).shape)


def _writer(value: ir.Value) -> ir.Operation:
    """The op that computes a value, seen through the loops around it."""
    while True:
        if isinstance(value.owner, ir.Block):
            raise ReadError("a result is handed through unchanged")
        op, number = value.owner.operation, ir.OpResult(value).result_number
        if op.name == "scf.for":
            value = list(op.regions[0].blocks[0])[-1].operation.operands[number]
        elif op.name == "scf.forall":
            value = _inserted(op, number)
        elif op.name in ("tensor.insert_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"):
            value = op.operands[0]
        else:
            return op


def _inserted(forall: ir.Operation, number: int) -> ir.Value:
    block = forall.regions[0].blocks[0]
    target = block.arguments[forall_rank(forall) + number]
    for op in list(block)[-1].operation.regions[0].blocks[0]:
        if op.operation.operands[1] == target:
            return op.operation.operands[0]
    raise ReadError("a parallel loop leaves one of its results unwritten")
