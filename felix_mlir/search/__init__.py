"""Choosing what to measure next: candidates of a task, and the task that gets the next round.

Contract: a `Searcher` proposes legal candidates and never the same one twice; its proposals depend only on its
seed and on what it observed, in order.
"""

from __future__ import annotations

from felix_mlir.search.evolutionary import EvolutionarySearcher
from felix_mlir.search.random_search import RandomSearcher
from felix_mlir.search.scheduler import TaskProgress, next_task
from felix_mlir.search.searcher import Candidate, Observation, Searcher, SearcherFactory

SEARCHERS: dict[str, SearcherFactory] = {
    "evolutionary": EvolutionarySearcher,
    "random": RandomSearcher,
}

__all__ = [
    "SEARCHERS",
    "Candidate",
    "EvolutionarySearcher",
    "Observation",
    "RandomSearcher",
    "Searcher",
    "SearcherFactory",
    "TaskProgress",
    "next_task",
]
