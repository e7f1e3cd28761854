"""Sizes in tiled IR as sympy expressions: what a value or a tensor dimension is in a tile that no edge cuts off."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import sympy
from iree.compiler import ir

from felix_mlir.schedule import GpuTileLevel, TileLevel
from felix_mlir.schedule.template import Knob
from felix_mlir.symbolic.tags import KNOB

_DYNAMIC = ir.ShapedType.get_dynamic_size()
_BINARY: Sequence[tuple[type, Callable[[Any, Any], Any]]] = (
    (ir.AffineAddExpr, operator.add),
    (ir.AffineMulExpr, operator.mul),
    (ir.AffineModExpr, sympy.Mod),
    (ir.AffineFloorDivExpr, lambda a, b: sympy.floor(a / b)),
    (ir.AffineCeilDivExpr, lambda a, b: sympy.ceiling(a / b)),
)


class ReadError(Exception):
    """The IR holds something that does not come from a template's script."""


class Sizes:
    """Reads sizes of one tiled function; with `is_legal` expressions need to hold for legal candidates only.

    `named` says what each size stands for that the payload gives a name (see `open_sizes`).
    """

    def __init__(self, knobs: Sequence[Knob], named: Mapping[str, sympy.Expr], is_legal: bool) -> None:
        self._is_legal = is_legal
        self._named = named
        self._knobs: dict[sympy.Symbol, Knob] = {knob.symbol: knob for knob in knobs}
        # Sizes of inner tiles are built from those of outer ones, which many slices share.
        self.value = cache(self._value)
        self._smallest = cache(self._minimum)

    def _value(self, value: ir.Value) -> sympy.Expr:
        """An index value in the first trip of every loop around it, which is a whole one unless it is the only one."""
        if isinstance(value.owner, ir.Block):
            return sympy.Integer(0)
        op = value.owner.operation
        if KNOB in op.attributes:
            return self._named[ir.StringAttr(op.attributes[KNOB]).value]
        if op.name == "arith.constant":
            return sympy.Integer(ir.IntegerAttr(op.attributes["value"]).value)
        if op.name in ("affine.apply", "affine.min"):
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            operands = [self.value(operand) for operand in op.operands]
            return self._smallest(tuple(_affine(expr, operands, map_.n_dims) for expr in map_.results))
        if op.name == "tensor.dim":
            index = self.value(op.operands[1])
            return self.dim(op.operands[0], int(index))
        raise ReadError(f"a size comes from {op.name}")

    def mixed(self, static: Sequence[int], dynamic: Sequence[ir.Value]) -> list[sympy.Expr]:
        """Sizes given as MLIR gives them: constants in place, the others in order."""
        rest = iter(dynamic)
        return [self.value(next(rest)) if size == _DYNAMIC else sympy.Integer(size) for size in static]

    def dim(self, value: ir.Value, index: int) -> sympy.Expr:
        """The size of one dimension of a tensor value."""
        size = ir.RankedTensorType(value.type).shape[index]
        if size != _DYNAMIC:
            return sympy.Integer(size)
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is not None and op.name == "tensor.extract_slice":
            return self.mixed(*slice_sizes(op))[index]
        if op is not None and op.name == "tensor.empty":
            return self.mixed(ir.RankedTensorType(value.type).shape, list(op.operands))[index]
        if op is not None and op.name == "tensor.expand_shape":
            return self.mixed(ir.RankedTensorType(value.type).shape, list(op.operands)[1:])[index]
        init = initial_value(value)
        if init is None:
            raise ReadError(f"a tensor of unknown size comes from {op.name if op is not None else 'an argument'}")
        return self.dim(init, index)

    def _minimum(self, sizes: tuple[sympy.Expr, ...]) -> sympy.Expr:
        """The minimum, without constants that a knob's sizes never exceed."""
        smallest = sympy.Min(*sizes)
        terms: Sequence[Any] = smallest.args if isinstance(smallest, sympy.Min) else (smallest,)
        knobs = [self._knobs[term] for term in terms if isinstance(term, sympy.Symbol)]
        if not knobs:
            return smallest
        bound = min(max(knob.options) for knob in knobs)
        if self._is_legal and len({knob.dim for knob in knobs}) == 1:
            # A knob divides the next outer one of its dimension, or that one is the whole loop (the template's
            # nesting constraints): of the knobs of one loop, beside its extent, only the innermost counts.
            inner = max(knobs, key=lambda knob: [*TileLevel, *GpuTileLevel].index(knob.level))
            terms = [inner.symbol, sympy.Integer(inner.extent), *(t for t in terms if not isinstance(t, sympy.Symbol))]
            bound = max(inner.options)
        return sympy.Min(*(term for term in terms if not (isinstance(term, sympy.Integer) and int(term) >= bound)))


def _affine(expr: ir.AffineExpr, operands: Sequence[sympy.Expr], n_dims: int) -> sympy.Expr:
    if isinstance(expr, ir.AffineDimExpr):
        return operands[expr.position]
    if isinstance(expr, ir.AffineSymbolExpr):
        return operands[n_dims + expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return sympy.Integer(expr.value)
    for kind, combine in _BINARY:
        if isinstance(expr, kind):
            return combine(_affine(expr.lhs, operands, n_dims), _affine(expr.rhs, operands, n_dims))
    raise ReadError(f"{expr} is not an affine expression")


def segments(op: ir.Operation) -> list[list[ir.Value]]:
    """The operands of an op by operand group."""
    operands = list(op.operands)
    groups: list[list[ir.Value]] = []
    for size in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]):
        groups.append(operands[:size])
        operands = operands[size:]
    return groups


def slice_sizes(op: ir.Operation) -> tuple[list[int], list[ir.Value]]:
    """The sizes of a tensor.extract_slice, as `Sizes.mixed` takes them."""
    return list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"])), segments(op)[2]


def initial_value(value: ir.Value) -> ir.Value | None:
    """The tensor that `value` is a later state of: what a loop starts with, what an op writes into; None if neither."""
    if isinstance(value.owner, ir.Block):
        loop, number = value.owner.owner.operation, ir.BlockArgument(value).arg_number
        if loop.name == "scf.for":
            return loop.operands[2 + number]
        if loop.name == "scf.forall":
            return segments(loop)[3][number - forall_rank(loop)]
        return None
    op, number = value.owner.operation, ir.OpResult(value).result_number
    if op.name == "scf.for":
        return op.operands[3 + number]
    if op.name == "scf.forall":
        return segments(op)[3][number]
    if op.name == "tensor.insert_slice":
        return op.operands[1]
    if op.name.startswith("linalg.") and len(op.regions) > 0:
        return segments(op)[1][number]
    return None


def forall_rank(op: ir.Operation) -> int:
    """The number of loops of an scf.forall."""
    return len(ir.DenseI64ArrayAttr(op.attributes["staticStep"]))
