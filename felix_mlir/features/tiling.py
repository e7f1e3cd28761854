"""A stage with the loops around it, seen as levels: how its iterations are cut into tiles at each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy

from felix_mlir.features.pieces import Piece, Size, count, pieces, smallest
from felix_mlir.symbolic.nest import Loop, Stage


class UnsupportedNestError(ValueError):
    """The nest has a form features are not defined for; the message says which."""


@dataclass(frozen=True)
class Level:
    """The region inside the first `depth` loops around a stage; `name` is the tile level of the last of them."""

    name: str
    depth: int


@dataclass(frozen=True)
class Tiling:
    """A stage and the loops around it, outermost first. A *box* is a size per loop of the stage."""

    around: tuple[Loop, ...]
    stage: Stage

    def __post_init__(self) -> None:
        if len(set(self.stage.dims)) != len(self.stage.dims):
            raise UnsupportedNestError(f"two loops of {self.stage.name} have one dimension: their tiles are ambiguous")

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The whole op, then what each run of loops of one tile level encloses, down to the stage's own tile."""
        levels = [Level("dispatch", 0)]
        for name, loops in itertools.groupby(self.around, key=lambda loop: loop.level.value):
            seen = sum(level.name.split(".")[0] == name for level in levels)
            depth = levels[-1].depth + len(list(loops))
            levels.append(Level(f"{name}.{seen + 1}" if seen else name, depth))
        return tuple(levels)

    def steps(self, dim: int, depth: int) -> list[Size]:
        """Tile sizes of a dimension in the first `depth` loops."""
        return [loop.step for loop in self.around[:depth] if loop.dim == dim]

    def extent(self, dim: int) -> Size:
        """Iterations of a dimension in all, each time the loops of other dimensions reach it.

        That is less than the op's extent when a consumer's tile asks for a window of an op fused into it: then
        what a whole tile asks for, in every tile.
        """
        if (outermost := next((loop for loop in self.around if loop.dim == dim), None)) is None:
            return self.stage.tile[self.stage.dims.index(dim)]
        return self.stage.extents[self.stage.dims.index(dim)] if dim in self.stage.dims else outermost.extent

    @cached_property
    def foreign_dims(self) -> tuple[int, ...]:
        """Dimensions of loops around the stage that are not its own: it runs anew for each of their trips."""
        return tuple(sorted({loop.dim for loop in self.around} - set(self.stage.dims)))

    def box(self, depth: int) -> tuple[Size, ...]:
        """Size per loop of the stage of the first tile inside the first `depth` loops: a largest one."""
        return tuple(self.size(dim, depth) for dim in self.stage.dims)

    def size(self, dim: int, depth: int) -> Size:
        """Iterations of a dimension the first tile at a depth covers."""
        steps = self.steps(dim, depth)
        key = (dim, len(steps))
        if key not in self._sizes:
            self._sizes[key] = smallest(self.extent(dim), *steps)
        return self._sizes[key]

    def pieces(self, dim: int, depth: int) -> tuple[Piece, ...]:
        """The tiles of a dimension inside the first `depth` loops."""
        steps = self.steps(dim, depth)
        key = (dim, len(steps))
        if key not in self._pieces:
            self._pieces[key] = pieces(self.extent(dim), steps)
        return self._pieces[key]

    # By dimension and how many of its loops lie outside; building an expression twice is what costs.
    @cached_property
    def _sizes(self) -> dict[tuple[int, int], Size]:
        return {}

    @cached_property
    def _counts(self) -> dict[tuple[int, int], Size]:
        return {}

    @cached_property
    def _pieces(self) -> dict[tuple[int, int], tuple[Piece, ...]]:
        return {}

    def tiles(self, depth: int, dims: Sequence[int] | None = None) -> Size:
        """How often the region at a depth is entered: tiles of all dimensions (or of `dims`) in all tiles outside."""
        chosen = (*self.stage.dims, *self.foreign_dims) if dims is None else dims
        return sympy.Mul(*(self._count(dim, self.steps(dim, depth)) for dim in chosen))

    def _count(self, dim: int, steps: Sequence[Size]) -> Size:
        key = (dim, len(steps))
        if key not in self._counts:
            self._counts[key] = count(self.extent(dim), steps)
        return self._counts[key]

    @cached_property
    def repeats(self) -> Size:
        """How often every iteration of the stage runs, because of loops that are not its own."""
        return self.tiles(len(self.around), self.foreign_dims)

    @cached_property
    def iterations(self) -> Size:
        """Iterations of the stage in the whole dispatch."""
        return sympy.Mul(*map(self.extent, self.stage.dims)) * self.repeats
