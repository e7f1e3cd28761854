"""GPU templates without matrix intrinsics: IREE's TileAndFuse pipeline, every thread computing a tile of its own.

The pipeline (addGPUTileAndFusePassPipeline in compiler/Codegen/LLVMGPU/Passes.cpp) spreads workgroup tiles of the root
op's parallel loops over workgroups, tiles its reduction loops, and then its parallel loops into one tile a thread;
the dispatch's other ops are fused into these loops. Operands named in `promote_operands` are copied to shared memory
one reduction tile at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sympy

from felix_mlir.schedule.configuration import ConfigurationAttributes, GpuTileLevel
from felix_mlir.schedule.cpu import tile_sizes, vector_sizes
from felix_mlir.schedule.dispatch import PARALLEL, ComputeOp, Dispatch
from felix_mlir.schedule.gpu_configuration import GpuConfiguration, sizes_in, with_threads
from felix_mlir.schedule.gpu_limits import GpuLimits
from felix_mlir.schedule.gpu_template import GpuTemplate
from felix_mlir.schedule.template import Constraint, Knob, Size, symbolic

TILE_AND_FUSE = "TileAndFuse"

# A thread can name 255 registers of 32 bits (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"): more accumulators than that live in memory.
THREAD_REGISTERS = 255
# One load or store of a thread moves at most this much.
WIDEST_ACCESS_BITS = 128
# Code for one tile of a thread is unrolled. Four times as many scalar steps took the compiler a minute.
_MOST_UNROLLED = 1024

Tiles = dict[GpuTileLevel, tuple[Size, ...]]


def simt_templates(dispatch: Dispatch, default: GpuConfiguration, limits: GpuLimits) -> list[GpuTemplate]:
    """Return the scalar templates of a dispatch that the compiler configured for TileAndFuse, else none.

    One reads operands from global memory; where a thread's neighbours read the same elements again in a reduction,
    another copies them to shared memory first.
    """
    if dispatch.pipeline != TILE_AND_FUSE or default.intrinsic:
        return []
    choices = [(), _shared_operands(dispatch.root)]
    return [_template(dispatch, default, limits, promoted) for promoted in dict.fromkeys(choices)]


def _shared_operands(root: ComputeOp) -> tuple[int, ...]:
    """Inputs of a reduction that do not depend on some parallel loop: the threads along it read the same elements."""
    parallel = {loop for loop, kind in enumerate(root.iterator_types) if kind == PARALLEL and root.extents[loop] > 1}
    if not root.reduction_loops:
        return ()
    return tuple(
        number
        for number, operand in enumerate(root.operands)
        if not operand.is_output
        and operand.is_projection
        and operand.shape
        and not parallel <= set().union(*operand.indices)
    )


def _template(
    dispatch: Dispatch, default: GpuConfiguration, limits: GpuLimits, promoted: tuple[int, ...]
) -> GpuTemplate:
    root, subgroup = dispatch.root, min(limits.subgroup_sizes)
    tiles, knobs = _root_tiles(root, default.ops[dispatch.root_index])
    symbols = {knob.name: knob.symbol for knob in knobs}
    threads = sympy.Mul(
        *(
            symbolic(outer) / symbolic(inner)
            for outer, inner in zip(tiles[GpuTileLevel.WORKGROUP], tiles[GpuTileLevel.THREAD], strict=True)
            if inner != 0
        )
    )
    constraints = [
        *_nesting(knobs),
        *_thread_count(threads, root, limits, subgroup),
        *_accumulators(root, tiles),
        *_unrolled(tiles),
        *_shared_memory(dispatch, tiles, promoted, limits),
    ]
    return GpuTemplate(
        name=" ".join([TILE_AND_FUSE, *(f"shared{number}" for number in promoted)]),
        dispatch=dispatch,
        knobs=knobs,
        constraints=tuple(c for c in constraints if c.condition != sympy.true),
        tiles=tuple(tiles if op.is_root else {} for op in dispatch.ops),
        threads=threads,
        subgroup_size=subgroup,
        intrinsic=None,
        promoted=promoted,
        stages=sympy.Integer(1),
        limits=limits,
        pipeline=TILE_AND_FUSE,
        written=_written(default, dispatch, tiles, promoted, symbols),
        derived={"threads": threads},
    )


def _root_tiles(root: ComputeOp, default: Any) -> tuple[Tiles, tuple[Knob, ...]]:
    """The root op's tiles: two knobs for each parallel loop, one for each reduction loop; none where it runs once."""
    lanes = max(1, WIDEST_ACCESS_BITS // root.element_bits)
    sizes: dict[GpuTileLevel, list[Size]] = {level: [] for level in _levels(root)}
    knobs: list[Knob] = []
    for loop, (kind, extent) in enumerate(zip(root.iterator_types, root.extents, strict=True)):
        for level in sizes:
            if (kind == PARALLEL) is (level is GpuTileLevel.REDUCTION):
                sizes[level].append(0)
            elif extent == 1:
                sizes[level].append(1)
            else:
                options = vector_sizes(extent, lanes) if level is GpuTileLevel.THREAD else tile_sizes(extent)
                if level is GpuTileLevel.WORKGROUP:
                    # A tile may stick out of the loop, so that its threads fill subgroups.
                    options |= {1 << (extent - 1).bit_length()}
                given = default.get(level, ())
                options |= {given[loop]} if loop < len(given) and given[loop] else set()
                knobs.append(Knob(f"{level}_d{loop}", root.dims[loop], level, extent, tuple(sorted(options))))
                sizes[level].append(knobs[-1].name)
    return {level: tuple(of_loops) for level, of_loops in sizes.items()}, tuple(knobs)


def _levels(root: ComputeOp) -> tuple[GpuTileLevel, ...]:
    reduction = (GpuTileLevel.REDUCTION,) if root.reduction_loops else ()
    return (GpuTileLevel.WORKGROUP, *reduction, GpuTileLevel.THREAD)


def _written(
    default: GpuConfiguration, dispatch: Dispatch, tiles: Tiles, promoted: tuple[int, ...], names: Iterable[str]
) -> ConfigurationAttributes:
    """The compiler's own attributes with the template's sizes and promotion; anything else stays as it chose."""
    known = set(names)
    (text,) = default.written.lowering_configs
    entries = dict(sizes_in(text))
    lists: dict[str, list[str]] = {}
    for level, sizes in tiles.items():
        # Entries that tile nothing (a workgroup size of a reduction loop) are kept.
        given = entries.get(level.value, (0,) * len(sizes))
        lists[level.value] = [
            f"${size}" if size in known else str(size or old) for size, old in zip(sizes, given, strict=True)
        ]
    if promoted:
        lists["promote_operands"] = [str(number) for number in promoted]
    body = ", ".join(f"{name} = [{', '.join(sizes)}]" for name, sizes in sorted(lists.items()))
    return ConfigurationAttributes(
        with_threads(default.written.translation_info, "$threads"), (f"#iree_gpu.lowering_config<{{{body}}}>",)
    )


def _nesting(knobs: tuple[Knob, ...]) -> Iterator[Constraint]:
    outer = {knob.dim: knob for knob in knobs if knob.level is GpuTileLevel.WORKGROUP}
    for knob in knobs:
        if knob.level is GpuTileLevel.THREAD:
            tile = outer[knob.dim]
            yield Constraint(f"{knob.name} must divide {tile.name}", sympy.Eq(sympy.Mod(tile.symbol, knob.symbol), 0))


def _thread_count(threads: sympy.Expr, root: ComputeOp, limits: GpuLimits, subgroup: int) -> Iterator[Constraint]:
    most = limits.threads_along_x
    yield Constraint(f"a workgroup must have at most {most} threads", sympy.Le(threads, most))
    parallel = [extent for extent, kind in zip(root.extents, root.iterator_types, strict=True) if kind == PARALLEL]
    # Tiles of powers of two, one element a thread, can fill a subgroup from here on.
    if sympy.prod(1 << (extent - 1).bit_length() for extent in parallel) >= subgroup:
        yield Constraint(f"its threads must fill subgroups of {subgroup}", sympy.Eq(sympy.Mod(threads, subgroup), 0))


def _accumulators(root: ComputeOp, tiles: Tiles) -> Iterator[Constraint]:
    elements = sympy.Mul(*(symbolic(size) for size in tiles[GpuTileLevel.THREAD] if size != 0))
    bits = max(operand.element_bits for operand in root.operands if operand.is_output)
    yield Constraint(
        f"a thread's results must fit its {THREAD_REGISTERS} registers",
        sympy.Le(elements * bits, THREAD_REGISTERS * 32),
    )


def _unrolled(tiles: Tiles) -> Iterator[Constraint]:
    inner = (*tiles[GpuTileLevel.THREAD], *tiles.get(GpuTileLevel.REDUCTION, ()))
    steps = sympy.Mul(*(symbolic(size) for size in inner if size != 0))
    yield Constraint(
        f"a thread must have at most {_MOST_UNROLLED} steps in one trip of the reduction",
        sympy.Le(steps, _MOST_UNROLLED),
    )


def _shared_memory(
    dispatch: Dispatch, tiles: Tiles, promoted: tuple[int, ...], limits: GpuLimits
) -> Iterator[Constraint]:
    """Copies of operands fit shared memory, with the results where an edge cuts off tiles that another op reads.

    Bufferization was seen to put those there, for then the threads of the two ops have different tiles.
    """
    root, limit = dispatch.root, limits.workgroup_memory_bytes
    if not promoted:
        return
    copies = sympy.Add(*(_tile_bytes(root, tiles, number) for number in promoted))
    yield Constraint(f"operands copied to shared memory must fit its {limit} bytes", sympy.Le(copies, limit))
    if any(operand.producer == dispatch.root_index for op in dispatch.ops for operand in op.operands):
        results = [_tile_bytes(root, tiles, n) for n, operand in enumerate(root.operands) if operand.is_output]
        whole: list[Any] = [
            sympy.Eq(sympy.Mod(extent, symbolic(size)), 0)
            for extent, size in zip(root.extents, tiles[GpuTileLevel.WORKGROUP], strict=True)
            if isinstance(size, str)
        ]
        fits: Any = sympy.Le(sympy.Add(copies, *results), limit)
        yield Constraint(
            f"operands and results of tiles that an edge cuts off must fit the {limit} bytes of shared memory",
            sympy.Or(sympy.And(*whole), fits),
        )


def _tile_bytes(root: ComputeOp, tiles: Tiles, number: int) -> sympy.Expr:
    """Bytes of an operand that one workgroup reads in one trip of the reduction loops."""
    operand = root.operands[number]
    elements: list[sympy.Expr] = []
    for loop in set().union(*operand.indices):
        level = GpuTileLevel.WORKGROUP if root.iterator_types[loop] == PARALLEL else GpuTileLevel.REDUCTION
        elements.append(symbolic(tiles[level][loop] or root.extents[loop]))
    return sympy.Mul(*elements) * -(-operand.element_bits // 8)
