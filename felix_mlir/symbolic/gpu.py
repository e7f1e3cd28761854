"""The order of tilings a GPU template stands for.

It follows addGPUTileAndFusePassPipeline in IREE's LLVMGPU/Passes.cpp: workgroup tiles of the last op with everything
that feeds it fused in, serial reduction loops around the root op with what feeds its inputs (a promoted operand's tile
is the slice it reads there), and subgroup and thread tiles inside, which compute again what they read of ops outside
the reduction loops. Those ops themselves the pipeline spreads over the workgroup's threads by a rule of its own
(GPUGreedilyDistributeToThreads); here each thread has the root op's tile of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from felix_mlir.schedule import GpuTemplate, GpuTileLevel
from felix_mlir.schedule.dispatch import PARALLEL
from felix_mlir.schedule.template import Size
from felix_mlir.symbolic.structure import Step, inputs, parallel_step

_INNER = (GpuTileLevel.SUBGROUP, GpuTileLevel.THREAD)


def gpu_steps(template: GpuTemplate) -> Iterator[Step]:
    """Yield the tilings of a GPU template in order."""
    dispatch = template.dispatch
    root = dispatch.root_index
    fused = tuple(sorted({made.producer for made in inputs(dispatch, is_recomputing=False)}))
    is_split = False
    for level in GpuTileLevel:
        sizes = _sizes(template, root, level)
        if level is GpuTileLevel.REDUCTION:
            if is_split := any(sizes):
                yield Step(root, level, sizes, is_parallel=False, fused=fused)
            continue
        by_dim = dict(zip(dispatch.root.dims, _of_kind(template, root, sizes, is_parallel=True), strict=True))
        yield from parallel_step(dispatch, level, by_dim, root if is_split else len(dispatch.ops) - 1)
        # Threads that share a reduction; workgroups never do.
        shared = _of_kind(template, root, sizes, is_parallel=False)
        if level in _INNER and any(shared):
            yield Step(root, level, shared, is_parallel=False)
    if is_split:
        for op in range(len(dispatch.ops)):
            if op not in (root, *fused):
                yield from _outside(template, op)


def _outside(template: GpuTemplate, op: int) -> Iterator[Step]:
    for level in _INNER:
        sizes = _of_kind(template, op, _sizes(template, op, level), is_parallel=True)
        if any(sizes):
            yield Step(op, level, sizes, is_parallel=False, is_outside=True)


def _sizes(template: GpuTemplate, op: int, level: GpuTileLevel) -> tuple[Size, ...]:
    """Sizes of an op's loops at a level, those of the root op where it has none; a loop of one trip is no loop."""
    dispatch = template.dispatch
    given = template.tiles[op].get(level)
    if given is None:
        whole: tuple[Size, ...] = (0,) * len(dispatch.root.dims)
        of_root = template.tiles[dispatch.root_index].get(level, whole)
        by_dim = dict(zip(dispatch.root.dims, of_root, strict=True))
        given = tuple(by_dim.get(dim, 0) for dim in dispatch.ops[op].dims)
    return tuple(0 if extent == 1 else size for size, extent in zip(given, dispatch.ops[op].extents, strict=True))


def _of_kind(template: GpuTemplate, op: int, sizes: tuple[Size, ...], *, is_parallel: bool) -> tuple[Size, ...]:
    kinds = template.dispatch.ops[op].iterator_types
    return tuple(size if (kind == PARALLEL) == is_parallel else 0 for size, kind in zip(sizes, kinds, strict=True))
