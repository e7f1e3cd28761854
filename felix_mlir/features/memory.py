"""Features of what a stage touches: per level and operand, and against the capacities of the caches.

They take the place of Felix's per-buffer features 58-147 (paper table 1, method notes 1.5), at every tile level
instead of the outermost loop alone, and exact where Felix takes hulls of ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import sympy

from felix_mlir.features.feature import Feature
from felix_mlir.features.machine import CACHES, MACHINE
from felix_mlir.features.pieces import Size, choose, total
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Component, Touched, beyond


def memory_features(prefix: str, tiling: Tiling, operands: Mapping[str, Touched]) -> Iterator[Feature]:
    """Yield the memory features of one stage, operands named as given."""
    for name, touched in operands.items():
        yield from _operand(f"{prefix}/{name}", tiling, touched)
    sets = [_working_set(tiling.box(level.depth), operands) for level in tiling.levels]
    at_levels: list[Size] = []
    for level, working_set in zip(tiling.levels, sets, strict=True):
        here = f"{prefix}/{level.name}"
        yield Feature(f"{here}/working_set", "bytes", working_set)
        for cache in CACHES:
            yield Feature(f"{here}/of_{cache}", "1", working_set / MACHINE[f"{cache}_bytes"])
        box = tiling.box(level.depth)
        moved: list[Size] = []
        for name, touched in operands.items():
            size = touched.bytes(box)
            moved.append(traffic(tiling, level.depth, touched))
            yield Feature(f"{here}/{name}/footprint", "bytes", size)
            yield Feature(f"{here}/{name}/traffic", "bytes", moved[-1])
            yield Feature(f"{here}/{name}/lines", "lines", touched.lines(box))
            yield Feature(f"{here}/{name}/run", "bytes", touched.run_bytes(box))
            yield Feature(f"{here}/{name}/reuse", "1", sympy.Mul(*box) / touched.elements(box))
        at_levels.append(sympy.Add(*moved))
    for cache in CACHES:
        # What the outermost tile that fits brings in once it need not bring in again; nothing fits: every tile.
        fits = [(t, s <= MACHINE[f"{cache}_bytes"]) for t, s in zip(at_levels, sets, strict=True)]
        yield Feature(f"{prefix}/{cache}/traffic", "bytes", choose(*fits[:-1], (at_levels[-1], sympy.true)))


def _operand(here: str, tiling: Tiling, touched: Touched) -> Iterator[Feature]:
    element = touched.access.buffer.element_bytes
    yield Feature(f"{here}/accessed", "bytes", tiling.iterations * element * directions(touched))
    yield Feature(f"{here}/unique", "bytes", touched.bytes(tiling.stage.extents))
    yield Feature(f"{here}/stride", "elements", _stride(tiling, touched))


def directions(touched: Touched) -> int:
    """An operand that is read and written moves both ways."""
    return int(touched.access.reads) + int(touched.access.writes)


def _working_set(box: tuple[Size, ...], operands: Mapping[str, Touched]) -> Size:
    """Bytes of a box in all operands; several ways to reach one buffer count once when they are the same."""
    different = {(t.access.buffer.name, repr(t.access.indices)): t for t in operands.values()}
    return sympy.Add(*(t.bytes(box) for t in different.values()))


def traffic(tiling: Tiling, depth: int, touched: Touched) -> Size:
    """Bytes moved when each tile at a depth fetches what it touches and writes back what it wrote."""
    return directions(touched) * tile_bytes(tiling, depth, touched)


def tile_bytes(tiling: Tiling, depth: int, touched: Touched, kept: Collection[int] = ()) -> Size:
    """The sum over all tiles at a depth of their distinct bytes, whole and cut-off tiles alike.

    Along the dimensions `kept`, which are none of the operand's, a tile keeps what it has: they do not count.
    """
    dims = tiling.stage.dims
    factors: list[Size] = [touched.access.buffer.element_bytes]
    factors += [_fetched(tiling, depth, touched, component) for component in touched.components]
    others = [dim for loop, dim in enumerate(dims) if loop not in touched.loops and dim not in kept]
    return sympy.Mul(*factors, tiling.tiles(depth, [*others, *tiling.foreign_dims]))


def _fetched(tiling: Tiling, depth: int, touched: Touched, component: Component) -> Size:
    """Sum of the distinct positions in one component over all tiles of its loops."""
    dims = [tiling.stage.dims[loop] for loop in component.loops]
    holds_all = touched.holds(component.dimensions[0], [tiling.extent(dims[0]), *tiling.steps(dims[0], depth)])
    if holds_all and len(dims) == 1 and len(component.dimensions) == 1:
        # Tiles partition a plain loop, so their sizes add up to it.
        return tiling.extent(dims[0])
    if (window := touched.window(component)) is not None and not touched.access.buffer.is_temporary:
        # Both terms of the count of distinct positions are products, and so are their sums.
        apart = (_total_beyond(tiling, depth, loop, step) for loop, step in window)
        return sympy.Mul(*map(tiling.extent, dims)) - sympy.Mul(*apart)
    tilings = [tiling.pieces(dim, depth) for dim in dims]
    return total(
        tilings, lambda *sizes: touched.component_elements(component, dict(zip(component.loops, sizes, strict=True)))
    )


def _total_beyond(tiling: Tiling, depth: int, loop: int, step: int) -> Size:
    """Sum of beyond(size, step) over all tiles of a loop."""
    dim = tiling.stage.dims[loop]
    if step == 1:
        return tiling.extent(dim) - tiling.tiles(depth, [dim])
    return total([tiling.pieces(dim, depth)], lambda size: beyond(size, step))


def _stride(tiling: Tiling, touched: Touched) -> Size:
    """Elements between what the first iteration touches and what the second does: the innermost loop that runs."""
    box = tiling.box(len(tiling.around))
    branches = [(touched.advance(loop), size > 1) for loop, size in reversed(list(enumerate(box)))]
    for depth in reversed(range(len(tiling.around))):
        loop = tiling.around[depth]
        dims = tiling.stage.dims
        step = loop.step * touched.advance(dims.index(loop.dim)) if loop.dim in dims else sympy.Integer(0)
        branches.append((step, sympy.Gt(tiling.size(loop.dim, depth), loop.step)))
    return choose(*branches, (sympy.Integer(0), sympy.true))
