"""Tiled IR read back as a loop nest: loops, sizes and accesses come from the IR, none is typed in per op."""

from __future__ import annotations

from collections import Counter

import sympy
from iree.compiler import ir
from iree.compiler.dialects import linalg

from felix_mlir.schedule import GpuTileLevel, Level, ScheduleTemplate, TileLevel
from felix_mlir.schedule.dispatch import walk
from felix_mlir.symbolic.buffers import Buffers
from felix_mlir.symbolic.nest import Access, Buffer, Loop, LoopNest, Stage
from felix_mlir.symbolic.open_sizes import open_sizes
from felix_mlir.symbolic.sizes import ReadError, Sizes, segments
from felix_mlir.symbolic.tags import ANCHOR, LEVEL, LOOPS, OP

_LEVELS: dict[str, Level] = {level.value: level for level in (*TileLevel, *GpuTileLevel)}


def read_nest(module: ir.Module, template: ScheduleTemplate, is_legal: bool = False) -> LoopNest:
    """Read a module that `apply.tile` or `apply.tile_symbolically` made of the template's dispatch.

    Sizes are integers or expressions of knob symbols. They hold for any values, the compiler's default (which may
    break the template's nesting constraints) included; with `is_legal` they are simpler and hold for legal candidates
    only. Raises ReadError.
    """
    function = next(op for op in walk(module.operation) if op.name == "func.func" and len(op.regions[0].blocks) > 0)
    return _Reader(function, template, is_legal).nest()


class _Reader:
    def __init__(self, function: ir.Operation, template: ScheduleTemplate, is_legal: bool) -> None:
        self._function = function
        self._dispatch = template.dispatch
        self._sizes = Sizes(template.knobs, open_sizes(template), is_legal)
        self._buffers = Buffers(function, template.dispatch, self._sizes)

    def nest(self) -> LoopNest:
        body = self._body(self._function.regions[0].blocks[0])
        nest = LoopNest(self._dispatch.name, body, ())
        used: dict[Buffer, None] = {}
        for _, stage in nest.stages():
            used.update(dict.fromkeys(access.buffer for access in stage.accesses))
        return LoopNest(self._dispatch.name, body, tuple(used))

    def _body(self, block: ir.Block) -> tuple[Loop | Stage, ...]:
        nodes: list[Loop | Stage] = []
        for op in (op.operation for op in block):
            if LEVEL in op.attributes:
                nodes.append(self._loop(op))
            elif op.name in ("scf.for", "scf.forall"):
                raise ReadError("a loop without a tile level")
            elif OP in op.attributes:
                nodes.append(self._stage(op))
        return tuple(nodes)

    def _loop(self, op: ir.Operation) -> Loop:
        level = _LEVELS[ir.StringAttr(op.attributes[LEVEL]).value]
        anchor = self._dispatch.ops[ir.IntegerAttr(op.attributes[ANCHOR]).value]
        loops = [ir.IntegerAttr(loop).value for loop in ir.ArrayAttr(op.attributes[LOOPS])]
        body = self._body(op.regions[0].blocks[0])
        bounds = self._bounds(op)
        if len(bounds) != len(loops):
            raise ReadError("a loop does not have the dimensions its script gave it")
        for loop, (extent, step) in reversed(list(zip(loops, bounds, strict=True))):
            body = (Loop(anchor.dims[loop], level, anchor.iterator_types[loop], extent, step, body),)
        return body[0]  # pyright: ignore[reportReturnType]  (the loop just made)

    def _bounds(self, op: ir.Operation) -> list[tuple[sympy.Expr, sympy.Expr]]:
        """Extent and step of each dimension of a loop; every loop of a tiling starts at 0."""
        if op.name == "scf.for":
            return [(self._sizes.value(op.operands[1]), self._sizes.value(op.operands[2]))]
        _, upper, step, _ = segments(op)
        uppers = self._sizes.mixed(list(ir.DenseI64ArrayAttr(op.attributes["staticUpperBound"])), upper)
        steps = self._sizes.mixed(list(ir.DenseI64ArrayAttr(op.attributes["staticStep"])), step)
        return list(zip(uppers, steps, strict=True))

    def _stage(self, op: ir.Operation) -> Stage:
        number = ir.IntegerAttr(op.attributes[OP]).value
        read = self._dispatch.ops[number]
        maps = [ir.AffineMapAttr(attr).value for attr in ir.ArrayAttr(linalg.get_indexing_maps(op))]
        return Stage(
            op=number,
            name=read.name,
            kinds=read.iterator_types,
            extents=tuple(sympy.Integer(extent) for extent in read.extents),
            dims=read.dims,
            tile=self._tile(op, maps),
            accesses=tuple(self._accesses(op, maps)),
            operations=Counter(read.scalar_ops),
            is_root=read.is_root,
        )

    def _tile(self, op: ir.Operation, maps: list[ir.AffineMap]) -> tuple[sympy.Expr, ...]:
        sizes: dict[int, sympy.Expr] = {}
        # Outputs first: what an op writes into is always a plain slice.
        for value, map_ in reversed(list(zip(op.operands, maps, strict=True))):
            for index, expr in enumerate(map_.results):
                if isinstance(expr, ir.AffineDimExpr) and expr.position not in sizes:
                    sizes[expr.position] = self._sizes.dim(value, index)
        return tuple(sizes[loop] for loop in range(maps[0].n_dims))

    def _accesses(self, op: ir.Operation, maps: list[ir.AffineMap]) -> list[Access]:
        inputs = len(segments(op)[0])
        whole = [operand.shape for operand in self._dispatch.ops[ir.IntegerAttr(op.attributes[OP]).value].operands]
        accesses: list[Access] = []
        scalars = op.regions[0].blocks[0].arguments
        for number, (value, map_, scalar) in enumerate(zip(op.operands, maps, scalars, strict=True)):
            reads, writes = next(iter(scalar.uses), None) is not None, number >= inputs
            # An operand that only gives a window its shape is never touched.
            if isinstance(value.type, ir.RankedTensorType) and (reads or writes):
                if writes:
                    buffer = self._buffers.written_by(op, number - inputs)
                else:
                    buffer = self._buffers.read_from(value, whole[number])
                accesses.append(Access(buffer, tuple(_linear(expr) for expr in map_.results), reads, writes))
        return accesses


def _linear(expr: ir.AffineExpr) -> tuple[dict[int, int], int]:
    """Coefficients by loop and the constant of an index expression."""
    if isinstance(expr, ir.AffineConstantExpr):
        return {}, expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return {expr.position: 1}, 0
    if isinstance(expr, (ir.AffineAddExpr, ir.AffineMulExpr)):
        (left, left_offset), (right, right_offset) = _linear(expr.lhs), _linear(expr.rhs)
        if isinstance(expr, ir.AffineAddExpr):
            loops = sorted(left.keys() | right.keys())
            return {loop: left.get(loop, 0) + right.get(loop, 0) for loop in loops}, left_offset + right_offset
        if not right:
            return {loop: c * right_offset for loop, c in left.items()}, left_offset * right_offset
    raise ReadError(f"{expr} is not linear in the loops")
