"""Which buffer a tensor value of tiled IR stands for.

Tensors are values, so what counts as one buffer is a choice: the first op that writes into what another op made (its
destination) shares that op's buffer, across loops; every other op starts one.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy
from iree.compiler import ir

from felix_mlir.schedule import Dispatch
from felix_mlir.schedule.dispatch import walk
from felix_mlir.symbolic.nest import Buffer
from felix_mlir.symbolic.sizes import ReadError, Sizes, forall_rank, initial_value, segments
from felix_mlir.symbolic.tags import OP

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


class Buffers:
    """Names the buffers of one tiled function; the same value always gives the same buffer."""

    def __init__(self, function: ir.Operation, dispatch: Dispatch, sizes: Sizes) -> None:
        self._dispatch = dispatch
        self._sizes = sizes
        self._starts: list[tuple[_Result, Buffer]] = []
        # The op that goes on with the buffer of another one.
        self._heirs: dict[_Result, _Result] = {}
        for op in walk(function):
            if op.name.startswith("linalg.") and len(op.regions) > 0:
                for number in range(len(op.results)):
                    result = _Result(op, number)
                    if (before := _before(_home(result.destination))) is not None:
                        self._heirs.setdefault(before, result)
        terminator = list(function.regions[0].blocks[0])[-1].operation
        self._results = [self._start(_writer(value)) for value in terminator.operands]

    def read_from(self, value: ir.Value, whole: tuple[int, ...]) -> Buffer:
        """The buffer that an operand lies in; `whole` is the operand's shape before tiling.

        A tensor that no compute op makes has that shape: reshaping what a function is given costs nothing.
        """
        shape = tuple(sympy.Integer(size) for size in whole)
        is_reshaped = False
        while True:
            init = initial_value(value)
            op = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if op is None and init is None:
                return _buffer(f"arg{ir.BlockArgument(value).arg_number}", value, shape, False)
            if op is None:
                assert init is not None
                value = init
            elif op.name == "tensor.extract_slice" or op.name in _RESHAPES:
                is_reshaped |= op.name in _RESHAPES
                value = op.operands[0]
            elif not (result := _writer(value)).op.name.startswith("linalg."):
                return self._named(result, shape, False)
            else:
                made = self.written_by(result.op, result.number)
                return Buffer(made.name, shape, made.element_bytes, made.is_temporary) if is_reshaped else made

    def written_by(self, op: ir.Operation, number: int) -> Buffer:
        """The buffer that an op's result lies in: all of it, or what one tile needs where it is temporary."""
        start = self._start(_Result(op, number))
        is_temporary = start not in self._results
        if OP in start.op.attributes and not is_temporary:
            operands = self._dispatch.ops[ir.IntegerAttr(start.op.attributes[OP]).value].operands
            shape = tuple(sympy.Integer(size) for size in [o for o in operands if o.is_output][start.number].shape)
        else:
            home = _home(start.destination)
            shape = tuple(self._sizes.dim(home, index) for index in range(ir.RankedTensorType(home.type).rank))
        return self._named(start, shape, is_temporary)

    def _start(self, result: _Result) -> _Result:
        """The first of the ops that write into one another's results."""
        while result.op.name.startswith("linalg."):
            before = _before(_home(result.destination))
            if before is None or self._heirs[before] != result:
                break
            result = before
        return result

    def _named(self, result: _Result, shape: tuple[sympy.Expr, ...], is_temporary: bool) -> Buffer:
        """The buffer an op starts, named after it; where there are several of a name they are numbered."""
        for known, buffer in self._starts:
            if known == result:
                return buffer
        op = result.op
        name = f"op{ir.IntegerAttr(op.attributes[OP]).value}" if OP in op.attributes else op.name.split(".")[-1]
        copies = sum(buffer.name.split("_")[0] == name for _, buffer in self._starts)
        value = op.results[result.number]
        buffer = _buffer(f"{name}_{copies}" if copies else name, value, shape, is_temporary)
        self._starts.append((result, buffer))
        return buffer


@dataclass(frozen=True)
class _Result:
    """Result `number` of an op."""

    op: ir.Operation
    number: int

    @property
    def destination(self) -> ir.Value:
        """What a structured op writes the result into."""
        return segments(self.op)[1][self.number]


def _home(destination: ir.Value) -> ir.Value:
    """What an op writes into, seen from outside the loops that carry it."""
    value = destination
    while True:
        inside = value
        if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tensor.extract_slice":
            inside = value.owner.operation.operands[0]
        init = initial_value(inside) if isinstance(inside.owner, ir.Block) else None
        if init is None:
            return value
        value = init


def _before(home: ir.Value) -> _Result | None:
    """The result of a structured op that `home` is or is cut from, or None."""
    value = home
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tensor.extract_slice":
        value = value.owner.operation.operands[0]
    if isinstance(value.owner, ir.Block):
        init = initial_value(value)
        return None if init is None else _before(_home(init))
    result = _writer(value)
    return result if result.op.name.startswith("linalg.") else None


def _buffer(name: str, value: ir.Value, shape: tuple[sympy.Expr, ...], is_temporary: bool) -> Buffer:
    element = ir.RankedTensorType(value.type).element_type
    bits = element.width if isinstance(element, (ir.IntegerType, ir.FloatType)) else 64
    return Buffer(name, shape, -(-bits // 8), is_temporary)


def _writer(value: ir.Value) -> _Result:
    """What computes a value, seen through the loops around it."""
    while True:
        if isinstance(value.owner, ir.Block):
            raise ReadError("a result is handed through unchanged")
        op, number = value.owner.operation, ir.OpResult(value).result_number
        if op.name == "scf.for":
            value = list(op.regions[0].blocks[0])[-1].operation.operands[number]
        elif op.name == "scf.forall":
            value = _inserted(op, number)
        elif op.name == "tensor.insert_slice" or op.name in _RESHAPES:
            value = op.operands[0]
        else:
            return _Result(op, number)


def _inserted(forall: ir.Operation, number: int) -> ir.Value:
    block = forall.regions[0].blocks[0]
    target = block.arguments[forall_rank(forall) + number]
    for op in list(block)[-1].operation.regions[0].blocks[0]:
        if op.operation.operands[1] == target:
            return op.operation.operands[0]
    raise ReadError("a parallel loop leaves one of its results unwritten")
