"""What code generation for matrix intrinsics needs beyond the constraints that the compiler states (IREE 3.13).

Each rule stands for a failure that candidates ran into which satisfied all of those.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy

from felix_mlir.schedule.configuration import GpuTileLevel
from felix_mlir.schedule.dispatch import PARALLEL, ComputeOp, Operand
from felix_mlir.schedule.template import Constraint, all_of, any_of

# Copies to shared memory move this much at a time (kPreferredCopyNumBits in GPU/IR/DerivedConfigUtils.cpp).
_COPY_BITS = 128

# Sizes in elements per loop of the root op.
Tiles = Mapping[GpuTileLevel, tuple[sympy.Expr, ...]]


def accumulates_in_result_type(root: ComputeOp, mma: str) -> bool:
    """Whether an intrinsic's accumulators are of the type the root op writes.

    Any other ("vector.transfer_write ... restricted to lane or thread distributed contexts", "failed to distribute")
    fails for all sizes.
    """
    accumulator = re.findall(r"_([A-Z]+\d+)_\d+x\d+x\d+", mma)[0].lower()
    return {operand.element_type for operand in root.operands if operand.is_output} == {accumulator}


def needs_padding(root: ComputeOp, intrinsic: Sequence[int]) -> bool:
    """Whether an edge of the problem cuts through intrinsics, so that tiles have to be padded."""
    return any(extent % size for extent, size in zip(root.extents, intrinsic, strict=True))


def is_contraction(root: ComputeOp) -> bool:
    """Whether no operand is read through a sliding window."""
    return all(operand.is_projection for operand in root.operands)


def lowering_rules(
    root: ComputeOp, tiles: Tiles, spread: Sequence[int], threads: sympy.Expr, is_padded: bool
) -> Iterator[Constraint]:
    """Yield what sizes have to meet; `spread` are the operands whose copies the threads share evenly."""
    if not is_padded:
        yield from _no_cut_tiles(root, tiles[GpuTileLevel.WORKGROUP])
    sizes = whole_tile(tiles)
    for number in spread:
        operand = root.operands[number]
        tile = [sympy.Add(*(sizes[loop] for loop in index)) - (len(index) - 1) for index in operand.indices]
        yield from _copies_spread_over_threads(operand, tile, threads)


def whole_tile(tiles: Tiles) -> list[sympy.Expr]:
    """Return how much of each loop one workgroup covers in one trip of the reduction loops."""
    return [w + r for w, r in zip(tiles[GpuTileLevel.WORKGROUP], tiles[GpuTileLevel.REDUCTION], strict=True)]


def _no_cut_tiles(root: ComputeOp, workgroup: Sequence[sympy.Expr]) -> Iterator[Constraint]:
    """Without padding, workgroup tiles fill a loop evenly or are all of it ("vector.scatter ... restricted to lane or
    thread distributed contexts", "expected 3 offset values").
    """
    for extent, size, kind in zip(root.extents, workgroup, root.iterator_types, strict=True):
        if kind == PARALLEL:
            condition = any_of(_divides(size, extent), sympy.Ge(size, extent))
            yield Constraint(f"tiles of {size} must divide the loop of {extent} trips, or be all of it", condition)


def _copies_spread_over_threads(
    operand: Operand, tile: Sequence[sympy.Expr], threads: sympy.Expr
) -> Iterator[Constraint]:
    """A tile that VectorDistribute copies to shared memory spreads evenly over the threads, innermost loop first.

    It follows getDerivedThreadLayout (Common/GPU/GPUNestedLayoutUtils.cpp), which fails with "failed to derive layout
    for promoted read-like op". `tile` has the operand's sizes in one reduction trip of a workgroup.
    """
    vector = _COPY_BITS // operand.element_bits
    at_once, elements, outer = threads * vector, sympy.Mul(*tile), sympy.Mul(*tile[:-1])
    # The innermost loops the threads cover at once: a part of a loop, whole loops, or all of them several times.
    covered = itertools.accumulate(reversed(tile), operator.mul)
    full = [any_of(_divides(size, at_once), _divides(at_once, size)) for size in covered]
    evenly = any_of(
        all_of(sympy.Le(at_once, elements), _divides(vector, tile[-1]), *full),
        # Too few elements for full vectors: each thread copies one smaller vector.
        all_of(sympy.Gt(at_once, elements), _divides(outer, threads)),
    )
    yield Constraint(f"copies of {' x '.join(map(str, tile))} elements must spread evenly over the threads", evenly)


def _divides(a: Any, b: Any) -> Any:
    return sympy.Eq(sympy.Mod(b, a), 0)
