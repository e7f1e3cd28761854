"""Reuse of an operand: how long until what the first iteration touched is touched again.

Felix (method notes 1.5) turns "the innermost loop that the operand does not depend on" into a chain of selections, as
here; its distances are those of whole loops, these of the tiles as they are first run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy

from felix_mlir.features.feature import Feature
from felix_mlir.features.pieces import Size, choose
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched


def reuse_features(prefix: str, tiling: Tiling, operands: Mapping[str, Touched]) -> Iterator[Feature]:
    """Yield, per operand, reuse count and distances; 1 and 0 where no loop reuses it.

    Only loops the operand does not depend on count; the overlap of neighbouring windows does not.
    """
    for name, touched in operands.items():
        trips: list[tuple[Size, Any]] = []
        iterations: list[tuple[Size, Any]] = []
        distances: list[tuple[Size, Any]] = []
        for count, runs, box in _absent_loops(tiling, touched):
            trips.append((count, runs))
            iterations.append((sympy.Mul(*box), runs))
            distances.append((sympy.Add(*(other.bytes(box) for other in operands.values())), runs))
        here = f"{prefix}/{name}"
        yield Feature(f"{here}/reuse_count", "1", choose(*trips, (sympy.Integer(1), sympy.true)))
        yield Feature(f"{here}/reuse_iterations", "iterations", choose(*iterations, (sympy.Integer(0), sympy.true)))
        yield Feature(f"{here}/reuse_bytes", "bytes", choose(*distances, (sympy.Integer(0), sympy.true)))


def _absent_loops(tiling: Tiling, touched: Touched) -> Iterator[tuple[Size, Any, tuple[Size, ...]]]:
    """Loops the operand does not depend on, innermost first: trips, whether more than one, the box of one trip."""
    innermost = tiling.box(len(tiling.around))
    one = sympy.Integer(1)
    for loop in reversed(range(len(innermost))):
        if loop not in touched.loops:
            box = tuple(size if other > loop else one for other, size in enumerate(innermost))
            yield innermost[loop], innermost[loop] > 1, box
    for depth in reversed(range(len(tiling.around))):
        loop = tiling.around[depth]
        dims = tiling.stage.dims
        if loop.dim in dims and dims.index(loop.dim) in touched.loops:
            continue
        outer = tiling.size(loop.dim, depth)
        yield sympy.ceiling(outer / loop.step), sympy.Gt(outer, loop.step), tiling.box(depth + 1)
