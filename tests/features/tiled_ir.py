"""Runs concretely tiled MLIR and counts what it does; it knows nothing of loop nests, features or their formulas.

Index arithmetic and slices are evaluated op by op; a tensor value is a window into the buffer it was cut from. Compute
ops are not evaluated: the iterations they make and the elements these touch are counted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import linalg

DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class Window:
    """A part of a buffer, unit strides."""

    buffer: str
    buffer_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass
class Counts:
    """What one compute op did: tiles entered by level, iterations made, elements touched.

    `touched` has the flat elements of each argument of the function: all in all under ("dispatch", 0), and for each
    tile under its level and number.
    """

    tiles: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    iterations: int = 0
    touched: dict[str, dict[tuple[str, int], set[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )


class TiledIr:
    """Executes the one function of a module; `counts` is by the number of the compute op (felix.op)."""

    def __init__(self, module: ir.Module) -> None:
        self.counts: dict[int, Counts] = defaultdict(Counts)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._values: dict[ir.Value, object] = {}
        self._entries = 0
        self._around: list[tuple[str, int]] = []
        function = next(op.operation for op in module.body.operations if op.operation.regions[0].blocks)
        block = function.regions[0].blocks[0]
        for index, argument in enumerate(block.arguments):
            shape = tuple(argument.type.shape)
            self.shapes[f"arg{index}"] = shape
            self._values[argument] = Window(f"arg{index}", shape, (0,) * len(shape), shape)
        self._run(block)

    def _run(self, block: ir.Block) -> None:
        for view in block:
            op = view.operation
            name = op.name.replace(".", "_")
            if op.name.startswith("linalg."):
                self._compute(op)
            elif handler := getattr(self, f"_{name}", None):
                handler(op)
            elif op.name not in ("func.return", "scf.yield", "scf.forall.in_parallel"):
                raise AssertionError(f"nothing runs {op.name}")

    def _arith_constant(self, op: ir.Operation) -> None:
        value = op.attributes["value"]
        self._values[op.results[0]] = value.value if isinstance(value, ir.IntegerAttr) else None

    def _affine_apply(self, op: ir.Operation) -> None:
        self._values[op.results[0]] = min(self._affine(op))

    _affine_min = _affine_apply

    def _tensor_dim(self, op: ir.Operation) -> None:
        self._values[op.results[0]] = self._values[op.operands[0]].shape[self._values[op.operands[1]]]

    def _tensor_empty(self, op: ir.Operation) -> None:
        shape = tuple(self._mixed(op.results[0].type.shape, op.operands))
        self._values[op.results[0]] = Window(f"empty {hash(op.results[0])}", shape, (0,) * len(shape), shape)

    def _tensor_cast(self, op: ir.Operation) -> None:
        self._values[op.results[0]] = self._values[op.operands[0]]

    def _tensor_extract_slice(self, op: ir.Operation) -> None:
        source, offsets, sizes, _ = self._segments(op)
        window = self._values[source[0]]
        starts = self._mixed(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]), offsets)
        extents = self._mixed(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]), sizes)
        assert len(extents) == len(op.results[0].type.shape), "a slice of lower rank"
        where = tuple(a + b for a, b in zip(window.offsets, starts, strict=True))
        self._values[op.results[0]] = Window(window.buffer, window.buffer_shape, where, tuple(extents))

    def _tensor_insert_slice(self, op: ir.Operation) -> None:
        self._values[op.results[0]] = self._values[op.operands[1]]

    def _scf_forall(self, op: ir.Operation) -> None:
        lower, upper, step, outputs = self._segments(op)
        bounds = [
            self._mixed(ir.DenseI64ArrayAttr(op.attributes[name]), dynamic)
            for name, dynamic in (("staticLowerBound", lower), ("staticUpperBound", upper), ("staticStep", step))
        ]
        block = op.regions[0].blocks[0]
        ranges = [range(*bound) for bound in zip(*bounds, strict=True)]
        for argument, output in zip(list(block.arguments)[len(ranges) :], outputs, strict=True):
            self._values[argument] = self._values[output]
        for point in np.ndindex(*map(len, ranges)):
            for argument, range_, index in zip(block.arguments, ranges, point, strict=False):
                self._values[argument] = range_[index]
            self._enter(op, block)
        for result, output in zip(op.results, outputs, strict=True):
            self._values[result] = self._values[output]

    def _scf_for(self, op: ir.Operation) -> None:
        lower, upper, step, *initial = op.operands
        block = op.regions[0].blocks[0]
        for argument, value in zip(list(block.arguments)[1:], initial, strict=True):
            self._values[argument] = self._values[value]
        for index in range(self._values[lower], self._values[upper], self._values[step]):
            self._values[block.arguments[0]] = index
            self._enter(op, block)
        for result, value in zip(op.results, initial, strict=True):
            self._values[result] = self._values[value]

    def _enter(self, op: ir.Operation, block: ir.Block) -> None:
        self._entries += 1
        self._around.append((ir.StringAttr(op.attributes["felix.level"]).value, self._entries))
        self._run(block)
        self._around.pop()

    def _compute(self, op: ir.Operation) -> None:
        counts = self.counts[ir.IntegerAttr(op.attributes["felix.op"]).value]
        maps = [attribute.value for attribute in ir.ArrayAttr(linalg.get_indexing_maps(op))]
        sizes: dict[int, int] = {}
        for value, map_ in zip(op.operands, maps, strict=True):
            for axis, expr in enumerate(map_.results):
                if isinstance(expr, ir.AffineDimExpr):
                    sizes[expr.position] = self._values[value].shape[axis]
        extents = [sizes[loop] for loop in range(maps[0].n_dims)]
        around = dict(self._around)
        for level, entry in around.items():
            counts.tiles[level].add(entry)
        counts.iterations += prod(extents)
        grid = np.indices(extents).reshape(len(extents), -1)
        scalars = op.regions[0].blocks[0].arguments
        inputs = len(op.operands) - len(op.results)
        for number, (value, map_, scalar) in enumerate(zip(op.operands, maps, scalars, strict=True)):
            window = self._values[value]
            # An operand that only gives a window its shape is never touched.
            is_touched = number >= inputs or next(iter(scalar.uses), None) is not None
            if is_touched and isinstance(window, Window) and window.buffer.startswith("arg"):
                axes = [
                    evaluate(expr, grid) + offset for expr, offset in zip(map_.results, window.offsets, strict=True)
                ]
                flat = np.ravel_multi_index([np.broadcast_to(a, grid.shape[1]) for a in axes], window.buffer_shape)
                for place in (("dispatch", 0), *around.items()):
                    counts.touched[window.buffer][place].update(flat.tolist())
        for result, output in zip(op.results, list(op.operands)[inputs:], strict=True):
            self._values[result] = self._values[output]

    def _segments(self, op: ir.Operation) -> list[list[ir.Value]]:
        operands = iter(op.operands)
        return [[next(operands) for _ in range(n)] for n in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]

    def _mixed(self, static, dynamic) -> list[int]:
        rest = iter(dynamic)
        return [self._values[next(rest)] if size == DYNAMIC else size for size in static]

    def _affine(self, op: ir.Operation) -> list[int]:
        map_ = ir.AffineMapAttr(op.attributes["map"]).value
        values = [self._values[operand] for operand in op.operands]
        return [evaluate(expr, values[: map_.n_dims], values[map_.n_dims :]) for expr in map_.results]


def evaluate(expr: ir.AffineExpr, dims, symbols=()):
    """The value of an affine expression."""
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[expr.position]
    left, right = evaluate(expr.lhs, dims, symbols), evaluate(expr.rhs, dims, symbols)
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right
    if isinstance(expr, ir.AffineModExpr):
        return left % right
    return left // right if isinstance(expr, ir.AffineFloorDivExpr) else -(-left // right)
