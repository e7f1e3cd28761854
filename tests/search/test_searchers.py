"""Searchers: legal proposals, none twice, the same for the same seed, and better when they learn."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from search_problems import make_problem

from felix_mlir.errors import RequestError
from felix_mlir.schedule import LegalSpace, ListedSpace
from felix_mlir.search import (
    SEARCHERS,
    Candidate,
    EvolutionarySearcher,
    Observation,
    RandomSearcher,
    TpeSearcher,
)


@pytest.fixture(params=sorted(SEARCHERS))
def factory(request):
    return SEARCHERS[request.param]


@pytest.fixture
def templates(tasks_of):
    return tasks_of("matmul_wide").root.tunable.templates


@pytest.fixture
def task(tasks_of):
    return tasks_of("matmul_wide").root


@pytest.fixture
def problem(task):
    return make_problem(task)


def cost(candidate: Candidate) -> float:
    """A smooth stand-in for a latency, best at distribution 32 and 128 with a 4 x 32 register tile."""
    ideal = {"distribution_d0": 32, "distribution_d1": 128, "vector_d0": 4, "vector_d1": 32, "vector_d2": 8}
    return 1e-3 * (1 + sum(abs(math.log2(candidate.values[name] / size)) for name, size in ideal.items()))


def run(searcher, rounds, batch=10):
    best = math.inf
    for _ in range(rounds):
        proposed = searcher.propose(batch)
        observations = [Observation(candidate, cost(candidate)) for candidate in proposed]
        searcher.observe(observations)
        best = min([best, *(o.latency_s for o in observations)])
    return best


def test_every_proposal_is_legal_and_new(factory, problem, templates):
    searcher = factory(problem, 1)
    by_name = {template.name: template for template in templates}
    keys = []
    for _ in range(8):
        proposed = searcher.propose(12)
        assert len(proposed) == 12
        for candidate in proposed:
            assert by_name[candidate.template].violations(candidate.values) == []
        keys += [candidate.key for candidate in proposed]
        searcher.observe([Observation(c, cost(c) if i % 3 else None) for i, c in enumerate(proposed)])
    assert len(set(keys)) == len(keys)


def test_nothing_observed_in_an_earlier_run_is_proposed_again(factory, problem):
    first = factory(problem, 5)
    earlier = first.propose(40)
    second = factory(problem, 5)
    second.observe([Observation(candidate, cost(candidate)) for candidate in earlier])
    assert not {c.key for c in earlier} & {c.key for c in second.propose(40)}


def test_the_same_seed_and_history_give_the_same_proposals(factory, problem):
    def proposals(seed):
        searcher = factory(problem, seed)
        found = []
        for _ in range(4):
            batch = searcher.propose(8)
            searcher.observe([Observation(candidate, cost(candidate)) for candidate in batch])
            found += [candidate.key for candidate in batch]
        return found

    assert proposals(3) == proposals(3)
    assert proposals(3) != proposals(4)


def test_the_start_comes_first(factory, task, templates):
    default = templates[0].values_of(task.tunable.default)
    start = Candidate(templates[0].name, default)
    assert factory(make_problem(task, [start]), 0).propose(3)[0] == start


def test_a_small_space_is_proposed_once_and_then_no_more(factory, tasks_of):
    searcher = factory(make_problem(tasks_of("reduction_full").root), 0)
    size = sum(space.size_bound for space in searcher.spaces.values())
    found = []
    while len(batch := searcher.propose(50)) == 50:
        found += batch
    found += batch
    assert 0.8 * size < len(found) <= size
    assert len({candidate.key for candidate in found}) == len(found)


@pytest.mark.parametrize("searcher", [EvolutionarySearcher, TpeSearcher])
def test_learning_finds_better_candidates_than_chance(searcher, problem):
    rounds, seeds = 12, range(5)
    learned = [run(searcher(problem, seed), rounds) for seed in seeds]
    drawn = [run(RandomSearcher(problem, seed), rounds) for seed in seeds]
    assert math.fsum(map(math.log, learned)) < math.fsum(map(math.log, drawn))


def test_failures_teach_nothing_but_are_not_repeated(factory, problem):
    searcher = factory(problem, 0)
    for _ in range(5):
        searcher.observe([Observation(candidate, None) for candidate in searcher.propose(12)])
    assert len(searcher.propose(12)) == 12


def test_templates_compete_in_one_search(factory, task, templates):
    """The same template under two names, the second of which is always faster."""
    twins = [replace(templates[0], name=name) for name in ("slow", "fast")]
    searcher = factory(make_problem(task, templates=twins), 0)
    proposed = []
    for _ in range(10):
        batch = searcher.propose(10)
        searcher.observe([Observation(c, cost(c) * (1 if c.template == "fast" else 20)) for c in batch])
        proposed += batch
    assert {candidate.template for candidate in proposed} == {"slow", "fast"}
    if factory is not RandomSearcher:
        assert sum(candidate.template == "fast" for candidate in proposed[50:]) > 25


def test_only_what_is_listed_is_proposed_and_all_of_it(factory, task, templates):
    points = LegalSpace(templates[0]).draw(40, np.random.default_rng(0))
    listed = {Candidate(templates[0].name, values).key for values in points}
    searcher = factory(make_problem(task, spaces=[ListedSpace(templates[0], points)]), 0)
    found = set()
    while batch := searcher.propose(8):
        found |= {candidate.key for candidate in batch}
        searcher.observe([Observation(candidate, cost(candidate)) for candidate in batch])
    assert found <= listed
    assert len(found) > 0.9 * len(listed)


def test_tpe_says_what_it_lacks(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RequestError, match=r"felix-mlir\[tpe\]"):
        TpeSearcher(problem, 0)
