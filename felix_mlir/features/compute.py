"""Features of the work of a stage: operations, vectors, registers, code size, waste at the edges.

They take the place of Felix's features 1-38 and 148-154 (method notes 1.5); vectors and registers are those of a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sympy

from felix_mlir.features.feature import Feature
from felix_mlir.features.machine import MACHINE
from felix_mlir.features.pieces import Size, total
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched
from felix_mlir.schedule.dispatch import PARALLEL
from felix_mlir.symbolic.nest import Stage


def compute_features(prefix: str, tiling: Tiling, operands: Mapping[str, Touched]) -> Iterator[Feature]:
    """Yield the work features of one stage."""
    stage, depth = tiling.stage, len(tiling.around)
    box = tiling.box(depth)
    yield Feature(f"{prefix}/iterations", "iterations", tiling.iterations)
    for kind, number in sorted(stage.operations.items()):
        yield Feature(f"{prefix}/{kind}", "operations", number * tiling.iterations)
    for level in tiling.levels[1:]:
        yield Feature(f"{prefix}/{level.name}/tiles", "tiles", tiling.tiles(level.depth))
        yield Feature(f"{prefix}/{level.name}/cut_tiles", "tiles", _cut_tiles(tiling, level.depth))
        yield Feature(f"{prefix}/{level.name}/padding", "1", _padding(tiling, level.depth))
        for dim in sorted({loop.dim for loop in tiling.around[: level.depth]}):
            yield Feature(f"{prefix}/{level.name}/d{dim}/tiles", "tiles", tiling.tiles(level.depth, [dim]))
    for level in tiling.levels:
        for loop, size in enumerate(tiling.box(level.depth)):
            here = f"{prefix}/{level.name}/l{loop}"
            yield Feature(f"{here}/size", "iterations", size)
            if level.depth:
                yield Feature(f"{here}/cut", "1", _cut_share(tiling, level.depth, stage.dims[loop]))
    vectorized = vector_loop(stage, operands)
    lanes = _lanes(operands)
    # Which loop a pipeline turns into lanes is its affair (a convolution over channels in the middle may well be
    # transposed first): what each loop would make of them.
    for loop in range(len(box)):
        use = tiling.iterations / (_vectors(tiling, loop, lanes) * lanes)
        yield Feature(f"{prefix}/l{loop}/lane_use", "1", use)
    # A copy has no operations, and still one vector per iteration moves.
    per_iteration = max(1, sum(stage.operations.values()))
    vectors = _vectors(tiling, vectorized, lanes)
    yield Feature(f"{prefix}/vector_operations", "operations", per_iteration * vectors)
    yield Feature(f"{prefix}/lane_use", "1", tiling.iterations / (vectors * lanes))
    yield Feature(f"{prefix}/code_size", "operations", per_iteration * _packed(range(len(box)), box, vectorized, lanes))
    parallel = [loop for loop, kind in enumerate(stage.kinds) if kind == PARALLEL]
    yield Feature(f"{prefix}/accumulators", "vectors", _packed(parallel, box, vectorized, lanes))
    # An operand lives in registers for one step of the reduction.
    registers = [_packed([p for p in parallel if p in t.loops], box, vectorized, lanes) for t in operands.values()]
    yield Feature(f"{prefix}/registers", "vectors", sympy.Add(*registers))
    yield Feature(f"{prefix}/of_registers", "1", sympy.Add(*registers) / MACHINE["vector_registers"])


def _cut_tiles(tiling: Tiling, depth: int) -> Size:
    """Tiles that are smaller than the tile size in some dimension."""
    tilings = [tiling.pieces(dim, depth) for dim in (*tiling.stage.dims, *tiling.foreign_dims)]
    # Both products are over the same counts, so that their difference never falls below zero, relaxed or not.
    every = sympy.Mul(*(sympy.Add(*(piece.count for piece in pieces)) for pieces in tilings))
    return every - sympy.Mul(*(pieces[0].count for pieces in tilings))


def _cut_share(tiling: Tiling, depth: int, dim: int) -> Size:
    """Share of a dimension's iterations that run in tiles smaller than the tile size.

    Whether there are any decides how the rest is compiled: where an edge may cut, sizes are not constants.
    """
    _, *cut = tiling.pieces(dim, depth)
    return sympy.Add(*(piece.count * piece.size for piece in cut)) / tiling.extent(dim)


def _padding(tiling: Tiling, depth: int) -> Size:
    """Iterations there would be if every tile were whole, over those there are: 1 is no waste."""
    dims = (*tiling.stage.dims, *tiling.foreign_dims)
    whole = [tiling.pieces(dim, depth)[0].size * tiling.tiles(depth, [dim]) for dim in dims]
    return sympy.Mul(*whole) / sympy.Mul(*(tiling.extent(dim) for dim in dims))


def vector_loop(stage: Stage, operands: Mapping[str, Touched]) -> int | None:
    """The loop whose iterations share a vector: the one along which most operands are contiguous.

    Of equals a parallel one, which needs no sum over lanes, and then the inner. None for a stage without loops.
    """
    loops = range(len(stage.dims))
    contiguous = {
        loop: sum(bool(t.strides) and t.strides[-1].get(loop) == 1 for t in operands.values()) for loop in loops
    }
    return max(loops, key=lambda loop: (contiguous[loop], stage.kinds[loop] == PARALLEL, loop), default=None)


def _lanes(operands: Mapping[str, Touched]) -> Size:
    """Elements of the widest operand that a vector register holds."""
    widest = max((touched.access.buffer.element_bytes for touched in operands.values()), default=1)
    return sympy.Max(1, sympy.floor(MACHINE["vector_bytes"] / widest))


def _vectors(tiling: Tiling, vectorized: int | None, lanes: Size) -> Size:
    """Vectors that cover all iterations, each tile on its own: a cut-off one wastes lanes."""
    if vectorized is None:
        return tiling.iterations
    along = tiling.pieces(tiling.stage.dims[vectorized], len(tiling.around))
    others = (tiling.extent(dim) for loop, dim in enumerate(tiling.stage.dims) if loop != vectorized)
    return sympy.Mul(*others, total([along], lambda size: sympy.ceiling(size / lanes)), tiling.repeats)


def _packed(loops: Sequence[int] | range, box: Sequence[Size], vectorized: int | None, lanes: Size) -> Size:
    """Vectors that hold the iterations of `loops` in a box."""
    return sympy.Mul(*(sympy.ceiling(box[p] / lanes) if p == vectorized else box[p] for p in loops))
