"""Drawing from, and moving in, the legal candidates of a template."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import sympy

from felix_mlir.schedule import Constraint, Knob, LegalSpace, ScheduleTemplate, Space, TileLevel
from felix_mlir.schedule.space import ListedSpace
from felix_mlir.schedule.template import knob_symbol


@pytest.fixture
def template(tasks_of) -> ScheduleTemplate:
    """Three knobs in two groups, a constraint inside one group and one across both: 4 + 2 + 0 legal points."""
    dispatch = tasks_of("matmul").root.tunable.dispatch
    a, b, c = (knob_symbol(name) for name in "abc")
    return ScheduleTemplate(
        "test",
        dispatch,
        (
            Knob("a", 0, TileLevel.DISTRIBUTION, 8, (1, 2, 4)),
            Knob("b", 0, TileLevel.CACHE_PARALLEL, 8, (1, 2, 4)),
            Knob("c", 1, TileLevel.DISTRIBUTION, 8, (1, 2, 4)),
        ),
        (Constraint("b divides a", sympy.Eq(sympy.Mod(a, b), 0)), Constraint("product", a * b * c <= 8)),
        ({}, {}, {}),
    )


def legal_points(template: ScheduleTemplate) -> set[tuple[int, ...]]:
    return {p for p in itertools.product((1, 2, 4), repeat=3) if p[0] % p[1] == 0 and p[0] * p[1] * p[2] <= 8}


def test_draws_are_uniform_over_exactly_the_legal_points(template):
    legal = legal_points(template)
    chi_squared, seeds, number = 0.0, 5, 6000
    for seed in range(seeds):
        draws = LegalSpace(template).draw(number, np.random.default_rng(seed))
        counts = Counter(tuple(values[name] for name in "abc") for values in draws)
        assert set(counts) == legal
        expected = number / len(legal)
        chi_squared += sum((count - expected) ** 2 / expected for count in counts.values())
    # Five independent sums of 10 degrees of freedom: mean 50, standard deviation 10.
    assert chi_squared < 80


def test_the_same_seed_draws_the_same(template):
    first, second = (LegalSpace(template).draw(50, np.random.default_rng(3)) for _ in range(2))
    assert first == second


@pytest.fixture(params=["matmul", "conv2d_nchw", "softmax"])
def real(request, tasks_of) -> ScheduleTemplate:
    return tasks_of(request.param).root.tunable.templates[0]


def spaces_of(template: ScheduleTemplate) -> list[Space]:
    """All legal candidates, and thirty of them."""
    space = LegalSpace(template)
    return [space, ListedSpace(template, space.draw(30, np.random.default_rng(1)))]


def belongs(space: Space, point: np.ndarray) -> bool:
    if isinstance(space, ListedSpace):
        return bool((space.points == point).all(axis=1).any())
    return space.template.violations(space.values(point)) == []


def test_moves_and_mixtures_stay_in_the_space_and_moves_change_something(real):
    rng = np.random.default_rng(0)
    for space in spaces_of(real):
        for parent, other in itertools.pairwise(space.sample(20, rng)):
            moves = space.neighbours(parent)
            assert len(moves)
            assert (moves != parent).any(axis=1).all()
            assert all(belongs(space, move) for move in moves)
            child = space.cross(parent, other, rng)
            assert child is None or belongs(space, child)


def test_candidates_snap_to_themselves_and_anything_else_into_the_space(real):
    rng = np.random.default_rng(0)
    for space in spaces_of(real):
        candidates = space.sample(50, rng)
        assert (space.snap(candidates)[1] == candidates).all()
        assert (space.snap(candidates * rng.uniform(0.999, 1.001, candidates.shape))[1] == candidates).all()
        largest = np.array([knob.options[-1] for knob in real.knobs])
        rows, snapped = space.snap(np.exp(rng.uniform(-1, np.log(2 * largest), (50, len(largest)))))
        assert len(rows) == len(snapped) <= 50
        assert all(belongs(space, point) for point in snapped)


def test_a_listed_candidate_need_not_be_legal_and_repeats_count_once(template):
    listed = [{"a": 4, "b": 4, "c": 4}, {"a": 1, "b": 1, "c": 1}, {"a": 4, "b": 4, "c": 4}]
    space = ListedSpace(template, listed)
    assert space.points.tolist() == [[1, 1, 1], [4, 4, 4]]
    assert space.snap(np.array([[3.0, 3.0, 1.0], [1.2, 1.0, 2.0]]))[1].tolist() == [[4, 4, 4], [1, 1, 1]]
    assert space.neighbours(space.points[0]).tolist() == [[4, 4, 4]]
    assert {tuple(p) for p in space.sample(50, np.random.default_rng(0))} == {(1, 1, 1), (4, 4, 4)}


def test_an_empty_space_gives_up_rather_than_hang(template):
    impossible = Constraint("never", knob_symbol("a") * knob_symbol("c") < 0)
    space = LegalSpace(ScheduleTemplate("none", template.dispatch, template.knobs, (impossible,), template.tiles))
    assert len(space.sample(1, np.random.default_rng(0))) == 0
