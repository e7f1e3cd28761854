"""The loop nest of a scheduled dispatch as typed data; every extent is an expression of knobs and shape symbols.

This is what `symbolic` reads back from tiled IR and what `features` is derived from. Sizes are positive integers;
expressions are sympy's, over knob symbols (`felix_mlir.schedule.template.knob_symbol`) and shape symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sympy

from felix_mlir.schedule import Level


@dataclass(frozen=True)
class Buffer:
    """A tensor the nest touches: `shape` in elements; `is_temporary` when it lives only inside the dispatch."""

    name: str
    shape: tuple[sympy.Expr, ...]
    element_bytes: int
    is_temporary: bool


@dataclass(frozen=True)
class Access:
    """How a stage touches a buffer.

    `indices` has, per dimension of the buffer, the coefficient of each loop of the op (`{loop: coefficient}`, loops
    numbered as in the op) and a constant: index = sum(coefficient * loop) + offset. `reads` and `writes` may both hold.
    """

    buffer: Buffer
    indices: tuple[tuple[Mapping[int, int], int], ...]
    reads: bool
    writes: bool


@dataclass(frozen=True)
class Stage:
    """One compute op on one innermost tile, in program order inside its loops.

    `op` is its number among the compute ops of the dispatch; where fusion computes an op twice, two stages have it.
    `extents` are the whole iteration space of the op, `dims` the dispatch-wide dimension of each of its loops,
    `tile` the iterations per loop that one execution covers when no tile is cut off at an edge, `operations` how many
    scalar operations of each kind (`arith.mulf`, ...) one iteration makes.
    """

    op: int
    name: str
    kinds: tuple[str, ...]
    extents: tuple[sympy.Expr, ...]
    dims: tuple[int, ...]
    tile: tuple[sympy.Expr, ...]
    accesses: tuple[Access, ...]
    operations: Mapping[str, int]
    is_root: bool


@dataclass(frozen=True)
class Loop:
    """A tile loop: it walks `extent` iterations of `dim` in steps of `step`; the last step may be cut off.

    `extent` is what the enclosing tile of the same dimension covers when it is whole (the op's own extent for the
    outermost), so that trip counts and remainders of a whole chain follow from the chain alone.
    """

    dim: int
    level: Level
    kind: str
    extent: sympy.Expr
    step: sympy.Expr
    body: tuple[Loop | Stage, ...]

    @property
    def trip_count(self) -> sympy.Expr:
        """Trips when the enclosing tile is whole."""
        return sympy.ceiling(self.extent / self.step)


@dataclass(frozen=True)
class LoopNest:
    """A whole scheduled dispatch; `body` is in program order."""

    name: str
    body: tuple[Loop | Stage, ...]
    buffers: tuple[Buffer, ...]

    def stages(self) -> Iterator[tuple[tuple[Loop, ...], Stage]]:
        """Yield every stage with the loops around it, outermost first."""
        yield from _stages((), self.body)


def _stages(around: tuple[Loop, ...], body: tuple[Loop | Stage, ...]) -> Iterator[tuple[tuple[Loop, ...], Stage]]:
    for node in body:
        if isinstance(node, Loop):
            yield from _stages((*around, node), node.body)
        else:
            yield around, node
