"""The order of tilings a template stands for: which op each level tiles, with what sizes, and what is fused into it.

It follows IREE's pipelines (addMultiTilingExpertPassPipeline and addConvTileAndDecomposeExpertPassPipeline in
LLVMCPU/Passes.cpp): parallel levels tile the last op of the dispatch and fuse everything that feeds it, reduction
levels tile the root op and fuse only what feeds its inputs, and what is left over gets its vector tiles at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from felix_mlir.schedule import GpuTemplate, Level, TileLevel
from felix_mlir.schedule.dispatch import PARALLEL, REDUCTION, ComputeOp, Dispatch
from felix_mlir.schedule.template import KnobValues, ScheduleTemplate, Size

_REDUCTION_LEVELS = (TileLevel.CACHE_REDUCTION, TileLevel.VECTOR_REDUCTION)


@dataclass(frozen=True)
class Structure:
    """What about a candidate decides which loops there are, not just how far they step.

    `idle` are levels the configuration leaves out because none of their loops would split. Without a cache-level
    reduction loop everything shares the vector loops; with one, the root op's vector loops are inside it and its
    consumers get their own. `recomputing` are the reduction levels whose loops compute again, in every trip, the
    inputs that do not depend on the reduction (the row maximum of a softmax, in the loop of the sum): IREE fuses them
    when an edge cuts tiles off, for then the sizes of their slices are not constants and the slices stay.
    """

    idle: frozenset[Level] = frozenset()
    recomputing: frozenset[Level] = frozenset()


@dataclass(frozen=True)
class Step:
    """Tile compute op `op` (its number in the dispatch) at `level`; `sizes` has one entry per loop, 0 for no loop.

    A parallel step makes one `scf.forall` and fuses all producers; any other makes one `scf.for` per size and fuses
    the compute ops `fused`. `order` lists all loops of the op, outermost first, where that is not the op's own order.
    `is_outside` says that the op meant is the one outside a split reduction, where fusion has put another inside.
    """

    op: int
    level: Level
    sizes: tuple[Size, ...]
    is_parallel: bool
    order: tuple[int, ...] = ()
    fused: tuple[int, ...] = ()
    is_outside: bool = False

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops of the op that are tiled, outermost first."""
        return tuple(loop for loop in self.order or range(len(self.sizes)) if self.sizes[loop])


def structure_of(template: ScheduleTemplate, values: KnobValues) -> Structure:
    """Return the structure of the loop nest of a legal candidate."""
    if isinstance(template, GpuTemplate):
        return Structure()
    dispatch = template.dispatch
    configured = template.configuration(values).ops[dispatch.root_index]
    idle = frozenset(template.tiles[dispatch.root_index]) - frozenset(configured)
    inner = {dim for producer in _whole_inputs(dispatch) for dim in dispatch.ops[producer].dims}
    sizes: dict[int, int | None] = dict(zip(dispatch.root.dims, dispatch.root.extents, strict=True))
    recomputing: set[TileLevel] = set()
    for level in (level for level in TileLevel if level in configured):
        if level in _REDUCTION_LEVELS:
            is_cut = any(sizes.get(dim, 0) is None for dim in inner)
            recomputing |= {level} if is_cut and any(configured[level]) else set()
        else:
            for dim, tile in zip(dispatch.root.dims, configured[level], strict=True):
                sizes[dim] = _constant_size(sizes[dim], tile)
    return Structure(idle, frozenset(recomputing))


def _constant_size(outer: int | None, tile: int) -> int | None:
    """The size of tiles of `tile` within `outer` iterations when all are equal, None when an edge cuts one off."""
    if tile in (0, 1):
        return tile or outer
    if outer is None or (tile < outer and outer % tile):
        return None
    return min(tile, outer)


def structures(template: ScheduleTemplate) -> tuple[Structure, ...]:
    """Return the structures that candidates of a template can have.

    A cache_parallel level that splits nothing is a loop of one trip and changes nothing else: it is never idle here.
    A GPU template has one: all its levels stay.
    """
    if isinstance(template, GpuTemplate):
        return (Structure(),)
    levels = [level for level in _REDUCTION_LEVELS if level in template.tiles[template.dispatch.root_index]]
    found: list[Structure] = []
    for idle in (frozenset({TileLevel.CACHE_REDUCTION}), frozenset[TileLevel]()):
        if idle <= set(levels):
            active = [level for level in levels if level not in idle] if _whole_inputs(template.dispatch) else []
            subsets = itertools.chain.from_iterable(itertools.combinations(active, n) for n in range(len(active) + 1))
            found += [Structure(idle, frozenset(subset)) for subset in subsets]
    return tuple(found)


def steps(template: ScheduleTemplate, structure: Structure) -> Iterator[Step]:
    """Yield the tilings of a template in order."""
    ops, root = template.dispatch.ops, template.dispatch.root_index
    is_split = False
    for level in TileLevel:
        if level not in template.tiles[root] or level in structure.idle:
            continue
        if level in _REDUCTION_LEVELS:
            yield from _reduction_step(template, level, level in structure.recomputing)
            is_split |= level is TileLevel.CACHE_REDUCTION
            if level is TileLevel.VECTOR_REDUCTION:
                yield from _other_reductions(template, is_split)
        elif level is not TileLevel.VECTOR_INNER_PARALLEL:
            # Inside a reduction loop there is nothing behind the root op to tile instead of it.
            by_dim = dict(zip(template.dispatch.root.dims, _sizes(template, root, level), strict=True))
            yield from parallel_step(template.dispatch, level, by_dim, root if is_split else len(ops) - 1)
    yield from _inner_steps(template)
    if is_split:
        yield from _leftovers(template)


def parallel_step(dispatch: Dispatch, level: Level, by_dim: Mapping[int, Size], anchor: int) -> Iterator[Step]:
    """Yield the step that tiles op `anchor`, or the root op if it lacks a dimension, by sizes of the root op's dims."""
    ops, root = dispatch.ops, dispatch.root
    if not {dim for dim, size in by_dim.items() if size} <= set(ops[anchor].dims):
        anchor = dispatch.root_index
    dims = ops[anchor].dims
    sizes = tuple(by_dim.get(dim, 0) for dim in dims)
    # IREE tiles the root op and fuses what follows it: the loops come in the root op's order.
    places = {dim: place for place, dim in enumerate(root.dims)}
    order = tuple(sorted(range(len(dims)), key=lambda loop: places.get(dims[loop], len(places))))
    if any(sizes):
        is_own = order == tuple(range(len(dims)))
        yield Step(anchor, level, sizes, is_parallel=True, order=() if is_own else order)


def _reduction_step(template: ScheduleTemplate, level: TileLevel, is_recomputing: bool) -> Iterator[Step]:
    root = template.dispatch.root_index
    sizes = _sizes(template, root, level)
    if any(sizes):
        fused = {made.producer for made in inputs(template.dispatch, is_recomputing)}
        yield Step(root, level, sizes, is_parallel=False, fused=tuple(sorted(fused)))


def _other_reductions(template: ScheduleTemplate, is_split: bool) -> Iterator[Step]:
    """Reductions beside the root op get loops of their own, without fusion."""
    ops, root = template.dispatch.ops, template.dispatch.root_index
    level = TileLevel.VECTOR_REDUCTION
    for index, op in enumerate(ops):
        sizes = _sizes(template, index, level)
        if index == root or REDUCTION not in op.iterator_types or not any(sizes):
            continue
        if index < root or not is_split:
            yield Step(index, level, sizes, is_parallel=False)
        if is_split:
            yield Step(index, level, sizes, is_parallel=False, is_outside=True)


def _inner_steps(template: ScheduleTemplate) -> Iterator[Step]:
    """Dimensions the root op does not have: tile the last op with the level behind the root, and the last before."""
    root = template.dispatch.root_index
    level = TileLevel.VECTOR_INNER_PARALLEL
    for candidates in (range(root + 1, len(template.dispatch.ops)), range(root)):
        having = [i for i in candidates if any(_sizes(template, i, level))]
        if having:
            yield Step(having[-1], level, _sizes(template, having[-1], level), is_parallel=True)


def _leftovers(template: ScheduleTemplate) -> Iterator[Step]:
    """Ops outside a split reduction: IREE tiles them to their vector sizes last, fills excepted."""
    level = TileLevel.VECTOR_COMMON_PARALLEL
    reduced = {made.producer for made in inputs(template.dispatch, is_recomputing=False)}
    inside = {template.dispatch.root_index, *reduced}
    for index, op in enumerate(template.dispatch.ops):
        sizes = _sizes(template, index, level)
        if index not in inside and any(sizes) and op.name != "linalg.fill":
            yield Step(index, level, sizes, is_parallel=False, is_outside=True)


def _sizes(template: ScheduleTemplate, op: int, level: TileLevel) -> tuple[Size, ...]:
    """Sizes of an op's loops at a level; a loop of one trip is no loop."""
    extents = template.dispatch.ops[op].extents
    given: Iterable[Size] = template.tiles[op].get(level, (0,) * len(extents))
    return tuple(0 if extent == 1 else size for size, extent in zip(given, extents, strict=True))


@dataclass(frozen=True)
class Input:
    """Operand number `operand` of op `consumer` is the result of op `producer`."""

    producer: int
    consumer: int
    operand: int


def inputs(dispatch: Dispatch, is_recomputing: bool) -> list[Input]:
    """What reduction loops fuse into themselves: ops behind the root op's inputs, consumers before producers.

    Those that a reduction loop walks along; when `is_recomputing`, the others too.
    """
    # The tensor that the root op accumulates into has the root's parallel dimensions only.
    kept = _parallel_dims(dispatch.root)
    found: list[Input] = []
    rest = [made for made in _made_by_ops(dispatch, dispatch.root_index) if not _is_output(dispatch, made)]
    while rest:
        made = rest.pop(0)
        if is_recomputing or not set(_written(dispatch.ops[made.producer])) <= kept:
            found.append(made)
            rest += _made_by_ops(dispatch, made.producer)
    return found


def _whole_inputs(dispatch: Dispatch) -> list[int]:
    """Ops that make an input of the root op which does not depend on its reduction loops."""
    kept = _parallel_dims(dispatch.root)
    made_by_ops = _made_by_ops(dispatch, dispatch.root_index)
    producers = [made.producer for made in made_by_ops if not _is_output(dispatch, made)]
    return [i for i in producers if set(_written(dispatch.ops[i])) <= kept]


def _is_output(dispatch: Dispatch, made: Input) -> bool:
    return dispatch.ops[made.consumer].operands[made.operand].is_output


def _made_by_ops(dispatch: Dispatch, consumer: int) -> list[Input]:
    """Operands of an op that other compute ops make."""
    operands = dispatch.ops[consumer].operands
    return [Input(o.producer, consumer, number) for number, o in enumerate(operands) if o.producer is not None]


def _written(op: ComputeOp) -> tuple[int | None, ...]:
    """The dispatch-wide dimensions of an op's result; outputs are indexed by plain loops."""
    output = next(operand for operand in op.operands if operand.is_output)
    return tuple(op.dims[next(iter(index))] if index else None for index in output.indices)


def _parallel_dims(op: ComputeOp) -> set[int]:
    return {dim for dim, kind in zip(op.dims, op.iterator_types, strict=True) if kind == PARALLEL}
