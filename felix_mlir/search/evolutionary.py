"""Evolutionary search: mutation and crossover of the fastest candidates measured so far (after Ansor, OSDI '20)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from typing_extensions import override

from felix_mlir.search.searcher import Candidate, Observation, Searcher, SearchProblem

# Ansor has no share of fresh draws inside a round; without a cost model to rank a large population, the
# measured population is small and would otherwise collapse onto its first good member.
_FRESH_SHARE = 0.15
# The first generation explores, but half of it stays near the compiler's own choice: the median of uniform draws is
# many times slower than that.
_FRESH_SHARE_AT_FIRST = 0.5
_CROSSOVER_SHARE = 0.25
_POPULATION = 24
_FIRST_GENERATION = 16


class EvolutionarySearcher(Searcher):
    """Keeps the fastest measured candidates as parents, faster ones more often."""

    def __init__(self, problem: SearchProblem, seed: int) -> None:
        super().__init__(problem, seed)
        self._seeds = list(problem.start)
        self._population: list[tuple[float, Candidate]] = []

    @override
    def suggestions(self, count: int) -> Iterator[Candidate | None]:
        while True:
            fresh = _FRESH_SHARE if len(self._population) >= _FIRST_GENERATION else _FRESH_SHARE_AT_FIRST
            dice = self.rng.random()
            parent = self._parent()
            if parent is None or dice < fresh:
                yield self.draw()
            elif dice < fresh + _CROSSOVER_SHARE:
                yield self._cross(parent, self._parent() or parent)
            else:
                yield self._mutate(parent)

    @override
    def learn(self, observations: Sequence[Observation]) -> None:
        found = [(o.latency_s, o.candidate) for o in observations if o.latency_s is not None]
        ranked = sorted([*self._population, *found], key=lambda member: member[0])
        self._population = ranked[:_POPULATION]

    def _parent(self) -> Candidate | None:
        """Choose a parent, faster ones more often; before anything is measured, one of the seeds if there are any."""
        if not self._population:
            return self._seeds[self.rng.integers(len(self._seeds))] if self._seeds else None
        ranks = np.arange(len(self._population))
        chances = np.exp(-4.0 * ranks / len(ranks))
        return self._population[self.rng.choice(ranks, p=chances / chances.sum())][1]

    def _mutate(self, parent: Candidate) -> Candidate | None:
        space = self.spaces[parent.template]
        point = space.point(parent.values)
        for _ in range(1 + self.rng.geometric(0.6)):
            moves = space.neighbours(point)
            if not len(moves):
                break
            point = moves[self.rng.integers(len(moves))]
        return Candidate(parent.template, space.values(point))

    def _cross(self, a: Candidate, b: Candidate) -> Candidate | None:
        if a.template != b.template:
            return None
        space = self.spaces[a.template]
        point = space.cross(space.point(a.values), space.point(b.values), self.rng)
        return None if point is None else Candidate(a.template, space.values(point))
