"""The legal candidates of a template as a set one can draw from and move in."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np

from felix_mlir.schedule.template import KnobValues, ScheduleTemplate

_BATCH = 4096
_MAX_BATCHES = 64


class Space:
    """Uniform draws from, and moves within, the legal candidates of one template.

    Knobs are grouped by dimension: each group's legal tuples (under the constraints that concern only that
    group) are listed once, a draw takes one tuple of each group, and the constraints across groups reject.
    Since every group tuple is equally likely, every legal candidate is.
    """

    def __init__(self, template: ScheduleTemplate) -> None:
        self.template = template
        groups: dict[int, list[int]] = {}
        for index, knob in enumerate(template.knobs):
            groups.setdefault(knob.dim, []).append(index)
        self._groups = [(np.array(indices), self._tuples(indices)) for indices in groups.values()]

    @property
    def size_bound(self) -> int:
        """Number of candidates before the constraints that couple dimensions."""
        return prod(len(tuples) for _, tuples in self._groups)

    def sample(self, count: int, rng: np.random.Generator) -> list[dict[str, int]]:
        """Draw up to `count` legal candidates, independently and uniformly.

        Fewer come back only when the legal share is so small that the draw budget runs out.
        """
        drawn: list[dict[str, int]] = []
        if any(len(tuples) == 0 for _, tuples in self._groups):
            return drawn
        for _ in range(_MAX_BATCHES):
            if len(drawn) >= count:
                break
            points = np.zeros((_BATCH, len(self.template.knobs)), dtype=np.int64)
            for indices, tuples in self._groups:
                points[:, indices] = tuples[rng.integers(len(tuples), size=_BATCH)]
            drawn.extend(self._legal(points)[: count - len(drawn)])
        return drawn

    def neighbour(self, values: KnobValues, rng: np.random.Generator) -> dict[str, int] | None:
        """Change the sizes of one dimension, a single knob where that is legal; None when no move is."""
        point = self._point(values)
        for group in rng.permutation(len(self._groups)):
            indices, tuples = self._groups[group]
            changed = (tuples != point[indices]).sum(axis=1)
            moves = tuples[changed == 1] if (changed == 1).any() else tuples[changed > 0]
            points = np.repeat(point[None, :], len(moves), axis=0)
            points[:, indices] = moves
            legal = self._legal(points)
            if legal:
                return legal[rng.integers(len(legal))]
        return None

    def cross(self, a: KnobValues, b: KnobValues, rng: np.random.Generator) -> dict[str, int] | None:
        """Take the sizes of each dimension from one of two parents; None when the mixture is not legal."""
        child, other = self._point(a), self._point(b)
        for indices, _ in self._groups:
            if rng.random() < 0.5:
                child[indices] = other[indices]
        legal = self._legal(child[None, :])
        return legal[0] if legal else None

    def _point(self, values: KnobValues) -> np.ndarray:
        return np.array([values[knob.name] for knob in self.template.knobs], dtype=np.int64)

    def _legal(self, points: np.ndarray) -> list[dict[str, int]]:
        names = [knob.name for knob in self.template.knobs]
        legal = points[self.template.satisfied(points).all(axis=1)]
        return [dict(zip(names, map(int, point), strict=True)) for point in legal]

    def _tuples(self, indices: list[int]) -> np.ndarray:
        knobs = [self.template.knobs[i] for i in indices]
        grid = np.array(list(itertools.product(*(knob.options for knob in knobs))), dtype=np.int64)
        for constraint in self.template.constraints:
            columns = {knob.name: grid[:, i] for i, knob in enumerate(knobs)}
            if columns.keys() >= set(constraint.knobs):
                grid = grid[constraint.holds(columns)]
        return grid
