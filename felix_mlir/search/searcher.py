"""What every searcher is: a proposer of candidates for one task that learns from what was measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from felix_mlir.schedule import LegalSpace, ScheduleTemplate, Space

if TYPE_CHECKING:  # torch takes seconds to import, and searchers without a cost model do without it.
    from felix_mlir.cost import OnlineModel


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


@dataclass(frozen=True)
class SearchProblem:
    """What a searcher searches: the candidates of one task.

    The templates of `spaces` compete in one search; `configured` is the program they schedule, at the
    executable-configurations phase, for vector registers of `vector_bytes`. `start` holds candidates worth trying
    first, such as the compiler's own choice. `cost_model` returns the model that the tasks of a run share, in which
    `task` identifies this one; it is called by searchers that use it.
    """

    task: str
    spaces: tuple[Space, ...]
    configured: Path
    vector_bytes: int
    cost_model: Callable[[], OnlineModel]
    start: tuple[Candidate, ...] = ()


def legal_spaces(templates: Sequence[ScheduleTemplate]) -> tuple[Space, ...]:
    """Return the space of all legal candidates of each template that leaves anything open."""
    return tuple(LegalSpace(template) for template in templates if template.knobs)


class UnsearchableError(Exception):
    """This searcher cannot search the problem; the message is the reason a user reads."""


class Searcher(ABC):
    """Proposes candidates of one task; `seed` alone, with the observations in order, decides what is proposed."""

    def __init__(self, problem: SearchProblem, seed: int) -> None:
        self.spaces = {space.template.name: space for space in problem.spaces}
        self.rng = np.random.default_rng(seed)
        self._start = list(problem.start)
        self._known: set[object] = set()
        self._pools: dict[str, list[dict[str, int]]] = {}

    def propose(self, count: int) -> list[Candidate]:
        """Return up to `count` candidates, none of them ever proposed or observed before.

        Fewer come back when the space seems exhausted.
        """
        chosen: list[Candidate] = []
        misses = 0
        source = self.suggestions(count)
        while len(chosen) < count and misses < _MAX_MISSES:
            candidate = self._start.pop(0) if self._start else next(source)
            if candidate is None or self.is_known(candidate):
                misses += 1
                continue
            misses = 0
            self._known.add(candidate.key)
            chosen.append(candidate)
        return chosen

    def is_known(self, candidate: Candidate) -> bool:
        """Whether a candidate was proposed or observed before."""
        return candidate.key in self._known

    def observe(self, observations: Sequence[Observation]) -> None:
        """Take in what was measured, in this run or an earlier one."""
        self._known.update(observation.candidate.key for observation in observations)
        self.learn(observations)

    @abstractmethod
    def suggestions(self, count: int) -> Iterator[Candidate | None]:
        """Yield candidates without end, best ideas first, of which about `count` will be taken.

        Repeats and None are skipped by the caller.
        """

    @abstractmethod
    def learn(self, observations: Sequence[Observation]) -> None:
        """Use new observations; a searcher that does not learn does nothing."""

    def draw(self) -> Candidate | None:
        """Draw one candidate uniformly from a random template; None when it has none to give."""
        name = sorted(self.spaces)[self.rng.integers(len(self.spaces))]
        # One draw costs about as much as hundreds, since constraints are evaluated in bulk.
        pool = self._pools.setdefault(name, [])
        if not pool:
            pool.extend(self.spaces[name].draw(_POOL, self.rng))
        return Candidate(name, pool.pop()) if pool else None


SearcherFactory = Callable[[SearchProblem, int], Searcher]

# So many repeats in a row mean that what is left is not worth looking for.
_MAX_MISSES = 200
_POOL = 256
