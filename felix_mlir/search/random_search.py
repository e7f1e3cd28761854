"""Uniform random search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typing_extensions import override

from felix_mlir.search.searcher import Candidate, Observation, Searcher


class RandomSearcher(Searcher):
    """Draws uniformly from the legal space; the yardstick for every other searcher."""

    @override
    def suggestions(self, count: int) -> Iterator[Candidate | None]:
        while True:
            yield self.draw()

    @override
    def learn(self, observations: Sequence[Observation]) -> None:
        pass
