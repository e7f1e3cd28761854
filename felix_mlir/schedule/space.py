"""The candidates of a template as a set one can draw from and move in."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod

import numpy as np
from typing_extensions import override

from felix_mlir.schedule.template import KnobValues, ScheduleTemplate

_BATCH = 4096
_MAX_BATCHES = 64
_NEAREST = 8


class Space(ABC):
    """Candidates of one template. A *point* is an array of sizes in the order of the template's knobs."""

    def __init__(self, template: ScheduleTemplate) -> None:
        self.template = template
        self.knobs = tuple(knob.name for knob in template.knobs)

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw up to `count` candidates, independently and uniformly; returns integers [n, knobs].

        Fewer come back only when there are hardly any.
        """

    @abstractmethod
    def neighbours(self, point: np.ndarray) -> np.ndarray:
        """Return the candidates a small step from `point`, which need not be a candidate; integers [n, knobs]."""

    @abstractmethod
    def cross(self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Mix two candidates; None when the mixture is none."""

    @abstractmethod
    def snap(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move positive real points [n, knobs] to candidates near them.

        Returns the rows that have one, [m] ascending, and their candidates, integers [m, knobs].
        """

    def draw(self, count: int, rng: np.random.Generator) -> list[dict[str, int]]:
        """Sample, as knob values by name."""
        return [self.values(point) for point in self.sample(count, rng)]

    def point(self, values: KnobValues) -> np.ndarray:
        return np.array([values[name] for name in self.knobs], dtype=np.int64)

    def values(self, point: np.ndarray) -> dict[str, int]:
        return dict(zip(self.knobs, map(int, point), strict=True))


class LegalSpace(Space):
    """All legal candidates of a template.

    Knobs are grouped by dimension: each group's legal tuples (under the constraints that concern only that
    group) are listed once, a draw takes one tuple of each group, and the constraints across groups reject.
    Since every group tuple is equally likely, every legal candidate is.
    """

    def __init__(self, template: ScheduleTemplate) -> None:
        super().__init__(template)
        groups: dict[int, list[int]] = {}
        for index, knob in enumerate(template.knobs):
            groups.setdefault(knob.dim, []).append(index)
        self._groups = [(np.array(indices), self._tuples(indices)) for indices in groups.values()]

    @property
    def size_bound(self) -> int:
        """Number of candidates before the constraints that couple dimensions."""
        return prod(len(tuples) for _, tuples in self._groups)

    @override
    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        drawn = np.zeros((0, len(self.knobs)), dtype=np.int64)
        if any(len(tuples) == 0 for _, tuples in self._groups):
            return drawn
        for _ in range(_MAX_BATCHES):
            if len(drawn) >= count:
                break
            points = np.zeros((_BATCH, len(self.knobs)), dtype=np.int64)
            for indices, tuples in self._groups:
                points[:, indices] = tuples[rng.integers(len(tuples), size=_BATCH)]
            drawn = np.concatenate([drawn, self._legal(points)])
        return drawn[:count]

    @override
    def neighbours(self, point: np.ndarray) -> np.ndarray:
        """Legal candidates that differ in the sizes of one dimension, in one knob only where that is possible."""
        moved: list[np.ndarray] = []
        for indices, tuples in self._groups:
            changed = (tuples != point[indices]).sum(axis=1)
            moves = tuples[changed == 1] if (changed == 1).any() else tuples[changed > 0]
            points = np.repeat(point[None, :], len(moves), axis=0)
            points[:, indices] = moves
            moved.append(self._legal(points))
        return np.concatenate(moved)

    @override
    def cross(self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Take the sizes of each dimension from one of two parents."""
        child = a.copy()
        for indices, _ in self._groups:
            if rng.random() < 0.5:
                child[indices] = b[indices]
        legal = self._legal(child[None, :])
        return legal[0] if len(legal) else None

    @override
    def snap(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Round each dimension's sizes, in log space, to its nearest legal tuple; illegal mixtures drop out."""
        logs = np.log(points)
        snapped = np.zeros(points.shape, dtype=np.int64)
        if any(len(tuples) == 0 for _, tuples in self._groups):
            return np.zeros(0, dtype=np.int64), snapped[:0]
        for indices, tuples in self._groups:
            distance = ((logs[:, None, indices] - np.log(tuples)[None, :, :]) ** 2).sum(axis=2)
            snapped[:, indices] = tuples[distance.argmin(axis=1)]
        rows = np.flatnonzero(self.template.satisfied(snapped).all(axis=1))
        return rows, snapped[rows]

    def _legal(self, points: np.ndarray) -> np.ndarray:
        return points[self.template.satisfied(points).all(axis=1)]

    def _tuples(self, indices: list[int]) -> np.ndarray:
        knobs = [self.template.knobs[i] for i in indices]
        grid = np.array(list(itertools.product(*(knob.options for knob in knobs))), dtype=np.int64)
        for constraint in self.template.constraints:
            columns = {knob.name: grid[:, i] for i, knob in enumerate(knobs)}
            if columns.keys() >= set(constraint.knobs):
                grid = grid[constraint.holds(columns)]
        return grid


class ListedSpace(Space):
    """Candidates that are listed, such as those of a table: the only ones there are, whatever the constraints say."""

    def __init__(self, template: ScheduleTemplate, candidates: Sequence[KnobValues]) -> None:
        super().__init__(template)
        self.points = np.unique(np.array([self.point(values) for values in candidates], dtype=np.int64), axis=0)
        self._logs = np.log(self.points)

    @override
    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return self.points[rng.integers(len(self.points), size=count)]

    @override
    def neighbours(self, point: np.ndarray) -> np.ndarray:
        """The nearest others in log space."""
        order = self._nearest(np.log(point)[None, :])[0]
        return self.points[[i for i in order if (self.points[i] != point).any()][:_NEAREST]]

    @override
    def cross(self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """The candidate nearest to a mixture of two parents."""
        return self.snap(np.where(rng.random(len(a)) < 0.5, a, b)[None, :])[1][0]

    @override
    def snap(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(points)), self.points[self._nearest(np.log(points))[:, 0]]

    def _nearest(self, logs: np.ndarray) -> np.ndarray:
        distance = ((logs[:, None, :] - self._logs[None, :, :]) ** 2).sum(axis=2)
        return distance.argsort(axis=1, kind="stable")
