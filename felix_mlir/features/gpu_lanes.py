"""How the threads of a subgroup, its lanes, lie in a stage, and what one access of all of them costs.

Threads are numbered along the thread tiles of a workgroup's tile, the innermost loop fastest (IREE maps the last loop
of a thread-level `scf.forall` to the first linear thread dimension). What is counted is one access of a subgroup: every
lane reads the first vector of its own tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from felix_mlir.features.gpu_machine import GPU_MACHINE
from felix_mlir.features.pieces import Size, choose
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched
from felix_mlir.schedule import GpuTileLevel


@dataclass(frozen=True)
class Lanes:
    """The largest box of lanes inside the first subgroup: per loop of the stage their number, and their step.

    `box` is the tile of one lane.
    """

    counts: dict[int, Size]
    steps: dict[int, Size]
    box: tuple[Size, ...]

    @property
    def total(self) -> Size:
        return sympy.Mul(*self.counts.values())


def lanes_of(tiling: Tiling, subgroup_size: int) -> Lanes | None:
    """Return the lanes of a stage, None for one that is not tiled to threads."""
    threads = [(depth, loop) for depth, loop in enumerate(tiling.around) if loop.level is GpuTileLevel.THREAD]
    counts: dict[int, Size] = {}
    steps: dict[int, Size] = {}
    left: Size = sympy.Integer(subgroup_size)
    for depth, loop in reversed(threads):
        count = sympy.Min(sympy.ceiling(tiling.size(loop.dim, depth) / loop.step), left, evaluate=False)
        left = sympy.Max(1, sympy.floor(left / count), evaluate=False)
        if loop.dim in tiling.stage.dims:
            counts[tiling.stage.dims.index(loop.dim)] = count
            steps[tiling.stage.dims.index(loop.dim)] = loop.step
    return Lanes(counts, steps, tiling.box(len(tiling.around))) if threads else None


@dataclass(frozen=True)
class LaneAccess:
    """One access of a subgroup to a buffer whose dimensions are `shape` elements long.

    It is exact when no two loops of lanes share a dimension, and for banks when one loop of lanes counts and lanes are
    a multiple or a fraction of a bank apart. Every row of lanes counts as if it began a line.
    """

    touched: Touched
    lanes: Lanes
    shape: Sequence[Size]

    @property
    def _row(self) -> int | None:
        """The innermost dimension that is longer than one element."""
        longer = [dimension for dimension, size in enumerate(self.shape) if size != 1]
        return longer[-1] if longer else None

    @property
    def _element_bytes(self) -> int:
        return self.touched.access.buffer.element_bytes

    @property
    def vector_elements(self) -> Size:
        """Elements a lane reads at once: consecutive ones of its tile, aligned to their own size."""
        row = self._row
        along = [] if row is None else [loop for loop, c in self.touched.strides[row].items() if c == 1]
        if row is None or len(along) != 1 or len(self.touched.strides[row]) != 1:
            return sympy.Integer(1)
        # Where the row's end need not be aligned the next row's beginning is not.
        lengths = [self.lanes.box[along[0]], *([self.shape[row]] if row > 0 else [])]
        branches: list[tuple[Size, Any]] = []
        width = 16 // self._element_bytes
        while width > 1:
            conditions: list[Any] = [sympy.Eq(sympy.Mod(length, width), 0) for length in lengths]
            conditions.append(sympy.Ge(GPU_MACHINE["vector_bytes"], width * self._element_bytes))
            branches.append((sympy.Integer(width), sympy.And(*conditions)))
            width //= 2
        return choose(*branches, (sympy.Integer(1), sympy.true))

    @property
    def lines(self) -> Size:
        """Lines of memory that one access touches: how many transactions it takes."""
        line = GPU_MACHINE["line_bytes"]
        vector = self.vector_elements * self._element_bytes
        row = self._row
        result: Size = sympy.ceiling(vector / line)
        for loop, stride in (self.touched.strides[row] if row is not None else {}).items():
            if loop in self.lanes.counts:
                count, apart = self.lanes.counts[loop], self.lanes.steps[loop] * stride * self._element_bytes
                span = sympy.ceiling(((count - 1) * apart + vector) / line)
                result = choose((span, apart <= line), (count * sympy.ceiling(vector / line), sympy.true))
        # At least one, off the lattice too.
        return sympy.Max(1, result * self._rows, evaluate=False)

    @property
    def _rows(self) -> Size:
        """Rows of the buffer that the lanes lie in."""
        outer = {loop for strides in self.touched.strides[: self._row] for loop in strides}
        return sympy.Mul(*(count for loop, count in self.lanes.counts.items() if loop in outer))

    @property
    def useful_bytes(self) -> Size:
        """Distinct bytes that one access is for."""
        counts = (count for loop, count in self.lanes.counts.items() if loop in self.touched.loops)
        return sympy.Mul(*counts, self.vector_elements * self._element_bytes)

    @property
    def bank_rounds(self) -> Size:
        """Rounds that shared memory takes for one access: words of one bank follow each other."""
        bank = GPU_MACHINE["bank_bytes"]
        width = GPU_MACHINE["shared_banks"] * bank
        rounds: Size = sympy.ceiling(self.vector_elements * self._element_bytes / width)
        for loop, count in self.lanes.counts.items():
            if loop in self.touched.loops:
                apart = self.lanes.steps[loop] * self._advance(loop) * self._element_bytes
                # Lanes meet in a bank when 2^n of them lie between: as soon as 2^n steps go round all banks.
                meetings = [
                    (sympy.ceiling(count / 2**n), sympy.Eq(sympy.Mod(2**n * apart, width), 0)) for n in range(8)
                ]
                rounds = rounds * choose(*meetings, (sympy.Integer(1), sympy.true))
        return rounds

    def _advance(self, loop: int) -> Size:
        """Elements from what one iteration of a loop touches to what the next does."""
        steps = (
            stride[loop] * sympy.Mul(*self.shape[dimension + 1 :])
            for dimension, stride in enumerate(self.touched.strides)
            if loop in stride
        )
        return sympy.Add(*steps)
