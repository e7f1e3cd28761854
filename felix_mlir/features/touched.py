"""What an affine access touches while its loops run over a box: elements, runs, cache lines, in closed form.

Loops that do not reach a buffer's dimension together with others make the dimensions independent, so that elements
multiply. All results are expressions of the sizes of the box, one per loop of the op. A temporary holds one tile at a
time: a box that is larger than it touches the same bytes again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any

import sympy

from felix_mlir.features.machine import MACHINE
from felix_mlir.features.pieces import Size, choose, smallest
from felix_mlir.symbolic.nest import Access

# A size per loop of the op, or of the loops that matter.
Sizes = Sequence[Size] | Mapping[int, Size]


@dataclass(frozen=True)
class Component:
    """Dimensions of a buffer that share loops; `loops` are all of theirs, ascending."""

    dimensions: tuple[int, ...]
    loops: tuple[int, ...]


@dataclass(frozen=True)
class Touched:
    """An access seen as a map from boxes of loop sizes to regions of its buffer."""

    access: Access

    @cached_property
    def strides(self) -> tuple[dict[int, int], ...]:
        """Per dimension, the size of the index's step per loop, loops it does not depend on left out."""
        return tuple({loop: abs(c) for loop, c in index.items() if c} for index, _ in self.access.indices)

    @cached_property
    def loops(self) -> frozenset[int]:
        """The loops the access depends on."""
        return frozenset(loop for strides in self.strides for loop in strides)

    @cached_property
    def components(self) -> tuple[Component, ...]:
        groups: list[tuple[set[int], set[int]]] = []
        for dimension, strides in enumerate(self.strides):
            joined = ({dimension}, set(strides))
            apart: list[tuple[set[int], set[int]]] = []
            for group in groups:
                if group[1] & joined[1]:
                    joined = (joined[0] | group[0], joined[1] | group[1])
                else:
                    apart.append(group)
            groups = [*apart, joined]
        return tuple(Component(tuple(sorted(d)), tuple(sorted(loops))) for d, loops in groups if loops)

    def component_elements(self, component: Component, sizes: Sizes) -> Size:
        """Distinct positions in the dimensions of one component."""
        each = [self._positions(dimension, self.strides[dimension], sizes) for dimension in component.dimensions]
        if len(each) == 1:
            return each[0]
        # Exact when the index determines the loops (a diagonal); otherwise an upper bound.
        return sympy.Min(sympy.Mul(*each), sympy.Mul(*(sizes[loop] for loop in component.loops)))

    def window(self, component: Component) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Of an index a*x + b*y: x and b, y and a; None for any other component.

        Its distinct values are |x| * |y| - beyond(|x|, b) * beyond(|y|, a) (see `_distinct`).
        """
        if len(component.dimensions) != 1 or len(component.loops) != 2:
            return None
        (x, a), (y, b) = _coprime(self.strides[component.dimensions[0]]).items()
        return (x, b), (y, a)

    def elements(self, sizes: Sizes) -> Size:
        """Distinct elements."""
        return sympy.Mul(*(self.component_elements(component, sizes) for component in self.components))

    def bytes(self, sizes: Sizes) -> Size:
        """Bytes of the distinct elements."""
        return self.elements(sizes) * self.access.buffer.element_bytes

    def pitch(self, dimension: int) -> Size:
        """Elements from one index of a dimension to the next, the buffer being row-major and dense."""
        return sympy.Mul(*self.access.buffer.shape[dimension + 1 :])

    def advance(self, loop: int) -> Size:
        """Elements between what one iteration of a loop touches and what the next does."""
        steps = [(index.get(loop, 0), self.pitch(d)) for d, (index, _) in enumerate(self.access.indices)]
        forward, backward = (sympy.Add(*(max(0, sign * c) * pitch for c, pitch in steps)) for sign in (1, -1))
        # Rarely both: only then does which way it goes depend on the shape.
        if forward == 0 or backward == 0:
            return forward + backward
        return sympy.Max(forward, backward) - sympy.Min(forward, backward)

    def run_bytes(self, sizes: Sizes) -> Size:
        """Bytes of the first run of consecutive elements."""

        def run(dimension: int) -> Size:
            pitch = self.pitch(dimension) * self.access.buffer.element_bytes
            strides = self._within_row(dimension)
            return choose(
                (self._interval(dimension, strides, sizes) * pitch, _is_dense(strides, sizes)), (pitch, sympy.true)
            )

        return self._by_innermost_partial_dimension(sizes, run, scalar=self.access.buffer.element_bytes)

    def lines(self, sizes: Sizes) -> Size:
        """Cache lines, every run of elements starting one.

        A run ends where an element is a line or more away from the next, or the next row does not follow at once.
        Exact but for windows that leave gaps between groups of adjacent rows, where it counts rows one by one.
        """
        line = MACHINE["line_bytes"]

        def lines(dimension: int) -> Size:
            pitch = self.pitch(dimension) * self.access.buffer.element_bytes
            strides = self._within_row(dimension)
            span_lines = sympy.ceiling(self._interval(dimension, strides, sizes) * pitch / line)
            apart = self._positions(dimension, strides, sizes) * sympy.ceiling(pitch / line)
            near = sympy.true if not strides else max(strides.values()) * pitch < line
            in_one = _is_dense(strides, sizes)
            per_row = choose((span_lines, in_one), (span_lines, near), (apart, sympy.true))
            return self._rows(dimension, sizes) * per_row

        return self._by_innermost_partial_dimension(sizes, lines, scalar=1)

    def _by_innermost_partial_dimension(self, sizes: Sizes, value: Callable[[int], Size], scalar: int) -> Size:
        """Take `value(d)` where d is the first dimension such that all those after it are covered whole."""
        shape = self.access.buffer.shape
        if not shape:
            return sympy.Integer(scalar)
        branches: list[tuple[Size, Any]] = []
        covered: Any = sympy.true
        for dimension in reversed(range(len(shape))):
            branches.append((value(dimension), covered))
            whole: Any = sympy.Eq(self._positions(dimension, self._within_row(dimension), sizes), shape[dimension])
            covered = sympy.And(covered, whole)
        return choose(*reversed(branches))

    def _positions(self, dimension: int, strides: dict[int, int], sizes: Sizes) -> Size:
        """Distinct indices of one dimension."""
        return self._clipped(dimension, _distinct(strides, sizes))

    def _interval(self, dimension: int, strides: dict[int, int], sizes: Sizes) -> Size:
        """Length of the interval that the indices of one dimension lie in."""
        return self._clipped(dimension, _span(strides, sizes))

    def _clipped(self, dimension: int, size: Size) -> Size:
        buffer = self.access.buffer
        return smallest(size, buffer.shape[dimension]) if buffer.is_temporary else size

    def holds(self, dimension: int, bounds: Sequence[Size]) -> bool:
        """Whether the buffer is known to hold whatever is no larger than any of `bounds` in a dimension."""
        if not self.access.buffer.is_temporary:
            return True
        shape = self.access.buffer.shape[dimension]
        parts = shape.args if isinstance(shape, sympy.Min) else (shape,)
        return all(any(b == part or (b.is_Integer and part.is_Integer and b <= part) for b in bounds) for part in parts)

    def _within_row(self, dimension: int) -> dict[int, int]:
        """The strides of a dimension whose loops do not also move an outer one (as on a diagonal)."""
        outer = {loop for strides in self.strides[:dimension] for loop in strides}
        return {loop: stride for loop, stride in self.strides[dimension].items() if loop not in outer}

    def _rows(self, dimension: int, sizes: Sizes) -> Size:
        """Distinct positions in the dimensions outside `dimension`."""
        outer = [c for c in self.components if c.dimensions[0] < dimension]
        return sympy.Mul(*(self.component_elements(_outside(c, dimension, self.strides), sizes) for c in outer))


def _outside(component: Component, dimension: int, strides: Sequence[dict[int, int]]) -> Component:
    dimensions = tuple(d for d in component.dimensions if d < dimension)
    return Component(dimensions, tuple(sorted({loop for d in dimensions for loop in strides[d]})))


def _span(strides: dict[int, int], sizes: Sizes) -> Size:
    """Length of the interval that one dimension's indices lie in."""
    return 1 + sympy.Add(*(stride * (sizes[loop] - 1) for loop, stride in strides.items()))


def _is_dense(strides: dict[int, int], sizes: Sizes) -> Any:
    """Whether one dimension's indices fill their interval."""
    if all(stride == 1 for stride in strides.values()):
        return sympy.true
    return sympy.Eq(_distinct(strides, sizes), _span(strides, sizes))


def _distinct(strides: dict[int, int], sizes: Sizes) -> Size:
    """Number of distinct values of sum(stride * loop), every loop running over its size."""
    if not strides:
        return sympy.Integer(1)
    steps = _coprime(strides)
    if all(step == 1 for step in steps.values()):
        return _span(steps, sizes)
    if len(steps) == 2:
        # (x, y) and (x + b, y - a) give the same a*x + b*y: count the points that are first of their kind.
        (x, a), (y, b) = steps.items()
        return sizes[x] * sizes[y] - beyond(sizes[x], b) * beyond(sizes[y], a)
    # Three loops or more in one index: exact when they fill the interval or never meet, else an upper bound.
    return sympy.Min(_span(steps, sizes), prod((sizes[loop] for loop in steps), start=sympy.Integer(1)))


def _coprime(strides: dict[int, int]) -> dict[int, int]:
    common = gcd(*strides.values())
    return {loop: stride // common for loop, stride in strides.items()}


def beyond(size: Size, step: int) -> Size:
    """max(size - step, 0) of a size that is at least 1."""
    return size - 1 if step == 1 else sympy.Max(size - step, 0)
