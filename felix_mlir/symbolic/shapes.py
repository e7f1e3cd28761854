"""Shapes as symbols: one nest, and so one compiled feature program, for all dispatches of one structure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import sympy

from felix_mlir.symbolic.nest import Access, Buffer, Loop, LoopNest, Stage


def extent_symbol(dim: int) -> sympy.Symbol:
    """The symbol for the trip count of a dispatch-wide dimension."""
    return sympy.Symbol(f"extent_d{dim}", integer=True, positive=True)


def lift_shapes(nest: LoopNest) -> tuple[LoopNest, dict[str, int]]:
    """Return the nest with the trip count of each dimension as a symbol, and the values of the symbols.

    Dispatches of equal structure have equal lifted nests. Putting the values back always gives the nest again, so what
    is derived from a lifted nest holds for every dispatch that has it. Dimensions of one trip stay 1.
    """
    values: dict[int, int] = {}
    for _, stage in nest.stages():
        for dim, extent in zip(stage.dims, stage.extents, strict=True):
            if extent.is_Integer and extent > 1:
                values.setdefault(dim, int(extent))
    lifter = _Lifter(values)
    for _, stage in nest.stages():
        for access in stage.accesses:
            lifter.buffer(access, stage)
    lifted = LoopNest(nest.name, lifter.body(nest.body), tuple(lifter.buffers.get(b, b) for b in nest.buffers))
    return lifted, {extent_symbol(dim).name: value for dim, value in values.items()}


class _Lifter:
    def __init__(self, values: Mapping[int, int]) -> None:
        self._values = values
        self.buffers: dict[Buffer, Buffer] = {}

    def body(self, body: tuple[Loop | Stage, ...]) -> tuple[Loop | Stage, ...]:
        return tuple(self._loop(node) if isinstance(node, Loop) else self._stage(node) for node in body)

    def buffer(self, access: Access, stage: Stage) -> Buffer:
        """Lift a buffer by the first access that is met; later ones find it lifted."""
        if access.buffer not in self.buffers:
            shape = tuple(
                self._size(size, index, offset, stage)
                for size, (index, offset) in zip(access.buffer.shape, access.indices, strict=True)
            )
            self.buffers[access.buffer] = replace(access.buffer, shape=shape)
        return self.buffers[access.buffer]

    def _loop(self, loop: Loop) -> Loop:
        extent, step = (self._lift(size, (loop.dim,)) for size in (loop.extent, loop.step))
        return replace(loop, extent=extent, step=step, body=self.body(loop.body))

    def _stage(self, stage: Stage) -> Stage:
        return replace(
            stage,
            extents=tuple(self._lift(size, (dim,)) for size, dim in zip(stage.extents, stage.dims, strict=True)),
            tile=tuple(self._lift(size, (dim,)) for size, dim in zip(stage.tile, stage.dims, strict=True)),
            accesses=tuple(replace(access, buffer=self.buffer(access, stage)) for access in stage.accesses),
        )

    def _size(self, size: sympy.Expr, index: Mapping[int, int], offset: int, stage: Stage) -> sympy.Expr:
        """A buffer's size along one dimension: what its index spans, when that is all of it."""
        if not size.is_Integer:
            return self._lift(size, tuple(stage.dims[loop] for loop in index))
        spans = [coefficient * (self._extent(stage, loop) - 1) for loop, coefficient in index.items()]
        whole = sympy.Integer(1 + offset) + sympy.Add(*spans)
        values = [(extent_symbol(dim), sympy.Integer(value)) for dim, value in self._values.items()]
        return whole if whole.subs(values) == size else size

    def _extent(self, stage: Stage, loop: int) -> sympy.Expr:
        return self._lift(stage.extents[loop], (stage.dims[loop],))

    def _lift(self, size: sympy.Expr, dims: tuple[int, ...]) -> sympy.Expr:
        extents = {sympy.Integer(self._values[dim]): extent_symbol(dim) for dim in dims if dim in self._values}
        return cast("sympy.Expr", size.xreplace(extents))
