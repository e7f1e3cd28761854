"""CPU templates, one per code generation pipeline, derived from loops and indexing maps.

Which level reaches which op follows IREE's pipelines (compiler/Codegen/LLVMCPU/Passes.cpp) and its own way of
spreading a root op's tiles over a dispatch (MultiLoweringConfigGenerator in KernelDispatch.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import sympy

from felix_mlir.schedule.configuration import Configuration, Level, TileLevel
from felix_mlir.schedule.dispatch import PARALLEL, REDUCTION, ComputeOp, Dispatch, UnsupportedDispatchError
from felix_mlir.schedule.template import Constraint, Knob, ScheduleTemplate, Size, all_of, any_of, symbolic

DOUBLE_TILING = "DoubleTilingExpert"
CONV_DECOMPOSE = "ConvTileAndDecomposeExpert"
BUFFER_OPS = "BufferOpsTileAndVectorize"

# The levels each pipeline reads (the rest it ignores without a word).
_PIPELINE_LEVELS: Mapping[str, tuple[TileLevel, ...]] = {
    DOUBLE_TILING: tuple(TileLevel),
    CONV_DECOMPOSE: (TileLevel.DISTRIBUTION, TileLevel.VECTOR_COMMON_PARALLEL, TileLevel.VECTOR_REDUCTION),
    BUFFER_OPS: (TileLevel.DISTRIBUTION, TileLevel.VECTOR_COMMON_PARALLEL),
}


@dataclass(frozen=True)
class CpuLimits:
    """What the target attribute of a dispatch says of the machine.

    `native_vector_bytes` is one vector register, `stack_bytes` what all stack buffers of a workgroup may take.
    """

    native_vector_bytes: int
    stack_bytes: int

    @property
    def largest_vector_bytes(self) -> int:
        """IREE refuses vectors of this size and up (512 registers: LLVMCPU/Utils.cpp)."""
        return 512 * self.native_vector_bytes


# Per level: the knob's name, the level that encloses it, and the iterator type of the root op's loops it tiles.
_LEVELS: Mapping[Level, tuple[str, TileLevel | None, str]] = {
    TileLevel.DISTRIBUTION: ("distribution", None, PARALLEL),
    TileLevel.CACHE_PARALLEL: ("cache", TileLevel.DISTRIBUTION, PARALLEL),
    TileLevel.VECTOR_COMMON_PARALLEL: ("vector", TileLevel.CACHE_PARALLEL, PARALLEL),
    TileLevel.CACHE_REDUCTION: ("cache", None, REDUCTION),
    TileLevel.VECTOR_REDUCTION: ("vector", TileLevel.CACHE_REDUCTION, REDUCTION),
}
# Copies of the accumulator tile that bufferization was seen to make: two, or three where an edge cuts tiles off.
_STACK_COPIES = 3
_VECTOR_LEVELS = (
    TileLevel.VECTOR_COMMON_PARALLEL,
    TileLevel.VECTOR_REDUCTION,
    TileLevel.VECTOR_INNER_PARALLEL,
)


def cpu_templates(dispatch: Dispatch, default: Configuration, limits: CpuLimits) -> list[ScheduleTemplate]:
    """Return the templates that fit a dispatch; the sizes of `default`, the compiler's choice, are among the options.

    Raises UnsupportedDispatchError when none fits its pipeline.
    """
    levels = _PIPELINE_LEVELS.get(dispatch.pipeline)
    if levels is None:
        raise UnsupportedDispatchError(f"no template for the pipeline {dispatch.pipeline}")
    return [_build(dispatch.pipeline, dispatch, default, limits, levels)]


def _build(
    name: str, dispatch: Dispatch, default: Configuration, limits: CpuLimits, levels: tuple[TileLevel, ...]
) -> ScheduleTemplate:
    tiles = tuple(_op_tiles(op, dispatch.root, levels) for op in dispatch.ops)
    knobs = _knobs(dispatch, tiles, default, limits)
    names = {knob.name for knob in knobs}
    # A loop with one trip has no choice to make: its tile is 1 wherever a vector level wants a size.
    fixed = tuple(
        {
            level: tuple(
                size if not isinstance(size, str) or size in names else int(level in _VECTOR_LEVELS) for size in sizes
            )
            for level, sizes in op.items()
        }
        for op in tiles
    )
    template = ScheduleTemplate(name, dispatch, knobs, (), fixed)
    constraints = [
        *_nesting(template),
        *_vector_sizes(template, limits),
        *_accumulators_on_the_stack(template, limits),
    ]
    if name == CONV_DECOMPOSE:
        constraints += _decomposable_window(template)
    # What always holds is no constraint.
    open_ = tuple(c for c in constraints if c.condition != sympy.true)
    return ScheduleTemplate(name, dispatch, knobs, open_, fixed)


def _op_tiles(op: ComputeOp, root: ComputeOp, levels: Iterable[TileLevel]) -> dict[TileLevel, tuple[Size, ...]]:
    """Which knob, if any, tiles each loop of `op` at each level."""
    kinds = dict(zip(root.dims, root.iterator_types, strict=True))
    tiles: dict[TileLevel, tuple[Size, ...]] = {}
    for level in levels:
        # The pipelines fail without a distribution level on the root op, even one that tiles nothing.
        required = op.is_root and level is TileLevel.DISTRIBUTION
        sizes = tuple(
            f"{_knob_prefix(level)}_d{dim}" if _reaches(level, op, kind, kinds.get(dim)) else 0
            for kind, dim in zip(op.iterator_types, op.dims, strict=True)
        )
        if any(sizes) or required:
            tiles[level] = sizes
    return tiles


def _knob_prefix(level: TileLevel) -> str:
    return "vector_inner" if level is TileLevel.VECTOR_INNER_PARALLEL else _LEVELS[level][0]


def _reaches(level: TileLevel, op: ComputeOp, kind: str, root_kind: str | None) -> bool:
    """Whether `level` tiles a loop of `op`: `kind` is the loop's, `root_kind` the root op's for that dimension."""
    if level is TileLevel.VECTOR_INNER_PARALLEL:
        return kind == PARALLEL and root_kind != PARALLEL
    if level is TileLevel.VECTOR_REDUCTION:
        # Producers are fused into the root op's reduction loops and take their tiles there.
        return kind == REDUCTION or (op.feeds_root and root_kind == REDUCTION)
    if level in (TileLevel.DISTRIBUTION, TileLevel.CACHE_REDUCTION) and not op.is_root:
        return False
    return kind == _LEVELS[level][2] and root_kind == kind


def _knobs(
    dispatch: Dispatch,
    tiles: tuple[dict[TileLevel, tuple[Size, ...]], ...],
    default: Configuration,
    limits: CpuLimits,
) -> tuple[Knob, ...]:
    knobs: dict[str, Knob] = {}
    lanes = max(1, limits.native_vector_bytes * 8 // dispatch.root.element_bits)
    for op, levels, given in zip(dispatch.ops, tiles, default.ops, strict=True):
        for level, sizes in levels.items():
            for loop, name in enumerate(sizes):
                extent = op.extents[loop]
                if not isinstance(name, str) or name in knobs or extent == 1:
                    continue
                options = set(vector_sizes(extent, lanes) if level in _VECTOR_LEVELS else tile_sizes(extent))
                if loop < len(given.get(level, ())) and given[level][loop]:
                    options.add(given[level][loop])
                knobs[name] = Knob(name, op.dims[loop], level, extent, tuple(sorted(options)))
    return tuple(knobs.values())


def tile_sizes(extent: int) -> set[int]:
    """Sizes worth trying for a loop of `extent` trips: one per trip count, and the powers of two.

    Of all sizes that give the same number of tiles the smallest wastes the least on the last, partial tile, so
    the set {ceil(extent / n)} holds every size that can win; it contains all divisors.
    """
    root = isqrt(extent)
    small = set(range(1, root + 1))
    return small | {-(-extent // n) for n in range(1, root + 2)} | set(_powers_of_two(extent))


def vector_sizes(extent: int, lanes: int) -> set[int]:
    """Sizes worth trying for the part of a loop that becomes vector code, at most eight registers wide.

    Divisors need no masks; a power of two up to the next one above the extent is one masked vector.
    """
    limit = min(8 * lanes, max(lanes, 1 << (extent - 1).bit_length()))
    divisors = {size for size in range(1, min(extent, limit) + 1) if extent % size == 0}
    return divisors | set(_powers_of_two(limit))


def _powers_of_two(limit: int) -> Iterable[int]:
    return (1 << i for i in range(limit.bit_length()) if 1 << i <= limit)


def _nesting(template: ScheduleTemplate) -> Iterable[Constraint]:
    """Each tile lies inside the tile of the next outer level and, except at the loop's end, fills it evenly."""
    by_place = {(knob.dim, knob.level): knob for knob in template.knobs}
    for knob in template.knobs:
        outer_level = _LEVELS[knob.level][1] if knob.level in _LEVELS else None
        while outer_level is not None and (knob.dim, outer_level) not in by_place:
            outer_level = _LEVELS[outer_level][1]
        if outer_level is None:
            continue
        outer = by_place[knob.dim, outer_level]
        whole = sympy.Eq(outer.symbol, knob.extent)
        fills = sympy.Eq(sympy.Mod(outer.symbol, knob.symbol), 0)
        yield Constraint(
            f"{knob.name} must divide {outer.name}, or {outer.name} be the whole loop ({knob.extent})",
            any_of(fills, whole),
        )


def _vector_sizes(template: ScheduleTemplate, limits: CpuLimits) -> Iterable[Constraint]:
    """No op may need a vector as large as the compiler refuses."""
    limit = limits.largest_vector_bytes
    seen: set[sympy.Expr] = set()
    for op, tiles in zip(template.dispatch.ops, template.tiles, strict=True):
        size = _bytes(op, tiles, _VECTOR_LEVELS)
        if not size.is_number and size not in seen:
            seen.add(size)
            yield Constraint(f"one vector of {op.name} must stay under {limit} bytes", sympy.Lt(size, limit))
    # A reduction split at the cache level cuts the root op off from its init: fusion into the vector loops stops
    # at the reduction loop, and what initialises the accumulator is vectorised one cache tile at a time.
    whole = _whole_reduction(template)
    for op, tiles in zip(template.dispatch.ops, template.tiles, strict=True):
        if whole and op.feeds_root and TileLevel.CACHE_PARALLEL in tiles:
            size = _bytes(op, tiles, (TileLevel.CACHE_PARALLEL,))
            yield Constraint(
                f"with the reduction split, one cache tile of {op.name} must stay under {limit} bytes",
                any_of(all_of(*whole), sympy.Lt(size, limit)),
            )


def _accumulators_on_the_stack(template: ScheduleTemplate, limits: CpuLimits) -> Iterable[Constraint]:
    """With the reduction split at the cache level, a consumer reads the accumulators of a cache tile from the stack."""
    dispatch = template.dispatch
    consumed = any(o.producer == dispatch.root_index for op in dispatch.ops for o in op.operands)
    whole = _whole_reduction(template)
    if not whole or not consumed:
        return
    tiles = template.tiles[dispatch.root_index]
    size = _STACK_COPIES * _bytes(dispatch.root, tiles, (TileLevel.CACHE_PARALLEL,), PARALLEL)
    yield Constraint(
        f"with the reduction split, {_STACK_COPIES} cache tiles of accumulators must fit {limits.stack_bytes} bytes",
        any_of(all_of(*whole), sympy.Le(size, limits.stack_bytes)),
    )


def _whole_reduction(template: ScheduleTemplate) -> list[Any]:
    """Conditions that together say that no cache-level loop splits the reduction."""
    return [sympy.Eq(k.symbol, k.extent) for k in template.knobs if k.level is TileLevel.CACHE_REDUCTION]


def _bytes(
    op: ComputeOp,
    tiles: Mapping[TileLevel, tuple[Size, ...]],
    levels: tuple[TileLevel, ...],
    kind: str | None = None,
) -> sympy.Expr:
    """Bytes of one tile of an op (of its loops of one kind) at the innermost of `levels`, in its widest type."""
    loops = [loop for loop, loop_kind in enumerate(op.iterator_types) if kind in (None, loop_kind)]
    elements = sympy.Mul(*(symbolic(_tile(tiles, levels, loop, op.extents[loop])) for loop in loops))
    return elements * (-(-op.element_bits // 8))


def _tile(tiles: Mapping[TileLevel, tuple[Size, ...]], levels: tuple[TileLevel, ...], loop: int, extent: int) -> Size:
    """The part of a loop one tile covers: the innermost of `levels` that tiles it, else all of it."""
    for level in reversed(levels):
        size = tiles[level][loop] if level in tiles else 0
        if size:
            return size
    return extent


def _decomposable_window(template: ScheduleTemplate) -> Iterable[Constraint]:
    """The pipeline turns a 2-D window into 1-D ones: one output dimension and its window loop must be single."""
    root = template.dispatch.root
    tiles = template.tiles[template.dispatch.ops.index(root)]
    pairs = [
        all_of(
            *(sympy.Eq(symbolic(_tile(tiles, _VECTOR_LEVELS, loop, root.extents[loop])), 1) for loop in sorted(index))
        )
        for operand in root.operands
        for index in operand.indices
        if len(index) == 2
    ]
    if len(pairs) > 1:
        yield Constraint(
            "one pair of output and window loops must have vector tiles of 1, or the window cannot be decomposed",
            any_of(*pairs),
        )
