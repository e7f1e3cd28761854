"""What every searcher is: a proposer of candidates for one task that learns from what was measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from felix_mlir.schedule import ScheduleTemplate, Space


@dataclass(frozen=True)
class Candidate:
    """One choice of a template and a size for each of its knobs."""

    template: str
    values: Mapping[str, int]

    @property
    def key(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What makes two candidates the same."""
        return self.template, tuple(sorted(self.values.items()))


@dataclass(frozen=True)
class Observation:
    """How a candidate ended: `latency_s` seconds per invocation, or None for any failure."""

    candidate: Candidate
    latency_s: float | None


class Searcher(ABC):
    """Proposes candidates of one task.

    `templates` compete in one search; `seed` alone, with the observations in order, decides what is proposed.
    `start` holds candidates worth trying first, such as the compiler's own choice.
    """

    def __init__(self, templates: Sequence[ScheduleTemplate], seed: int, start: Sequence[Candidate] = ()) -> None:
        self.spaces = {template.name: Space(template) for template in templates if template.knobs}
        self.rng = np.random.default_rng(seed)
        self._start = list(start)
        self._known: set[object] = set()
        self._pools: dict[str, list[dict[str, int]]] = {}

    def propose(self, count: int) -> list[Candidate]:
        """Return up to `count` legal candidates, none of them ever proposed or observed before.

        Fewer come back when the space seems exhausted.
        """
        chosen: list[Candidate] = []
        misses = 0
        source = self.suggestions()
        while len(chosen) < count and misses < _MAX_MISSES:
            candidate = self._start.pop(0) if self._start else next(source)
            if candidate is None or candidate.key in self._known:
                misses += 1
                continue
            misses = 0
            self._known.add(candidate.key)
            chosen.append(candidate)
        return chosen

    def observe(self, observations: Sequence[Observation]) -> None:
        """Take in what was measured, in this run or an earlier one."""
        self._known.update(observation.candidate.key for observation in observations)
        self.learn(observations)

    @abstractmethod
    def suggestions(self) -> Iterator[Candidate | None]:
        """Yield candidates without end, best ideas first; repeats and None are skipped by the caller."""

    @abstractmethod
    def learn(self, observations: Sequence[Observation]) -> None:
        """Use new observations; a searcher that does not learn does nothing."""

    def draw(self) -> Candidate | None:
        """Draw one legal candidate uniformly from a random template; None when it has none to give."""
        name = sorted(self.spaces)[self.rng.integers(len(self.spaces))]
        # One draw costs about as much as hundreds, since constraints are evaluated in bulk.
        pool = self._pools.setdefault(name, [])
        if not pool:
            pool.extend(self.spaces[name].sample(_POOL, self.rng))
        return Candidate(name, pool.pop()) if pool else None


SearcherFactory = Callable[[Sequence[ScheduleTemplate], int, Sequence[Candidate]], Searcher]

# So many repeats in a row mean that what is left is not worth looking for.
_MAX_MISSES = 200
_POOL = 256
