"""Choosing what to measure next: candidates of a task, and the task that gets the next round.

Contract: a `Searcher` proposes legal candidates and never the same one twice; its proposals depend only on its
seed and on what it observed, in order.
"""

from __future__ import annotations

from felix_mlir.errors import RequestError
from felix_mlir.search.evolutionary import EvolutionarySearcher
from felix_mlir.search.random_search import RandomSearcher
from felix_mlir.search.scheduler import TaskProgress, next_task
from felix_mlir.search.searcher import (
    Candidate,
    Observation,
    Searcher,
    SearcherFactory,
    SearchProblem,
    UnsearchableError,
    legal_spaces,
)
from felix_mlir.search.tpe import TpeSearcher


def gradient_searcher(problem: SearchProblem, seed: int) -> Searcher:
    """Make a GradientSearcher; torch, which takes seconds to import, waits until one is wanted."""
    from felix_mlir.search.gradient import GradientSearcher

    return GradientSearcher(problem, seed)


SEARCHERS: dict[str, SearcherFactory] = {
    "gradient": gradient_searcher,
    "evolutionary": EvolutionarySearcher,
    "random": RandomSearcher,
    "tpe": TpeSearcher,
}


def find_searcher(name: str) -> SearcherFactory:
    """Return the searcher called `name`; raises RequestError when there is none."""
    if name not in SEARCHERS:
        raise RequestError(f"unknown searcher '{name}': choose from {', '.join(SEARCHERS)}")
    return SEARCHERS[name]


__all__ = [
    "SEARCHERS",
    "Candidate",
    "EvolutionarySearcher",
    "Observation",
    "RandomSearcher",
    "SearchProblem",
    "Searcher",
    "SearcherFactory",
    "TaskProgress",
    "TpeSearcher",
    "UnsearchableError",
    "find_searcher",
    "gradient_searcher",
    "legal_spaces",
    "next_task",
]
