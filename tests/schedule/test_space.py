"""Drawing from, and moving in, the legal candidates of a template."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import sympy

from felix_mlir.schedule import Constraint, Knob, ScheduleTemplate, Space, TileLevel
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
        draws = Space(template).sample(number, np.random.default_rng(seed))
        counts = Counter(tuple(values[name] for name in "abc") for values in draws)
        assert set(counts) == legal
        expected = number / len(legal)
        chi_squared += sum((count - expected) ** 2 / expected for count in counts.values())
    # Five independent sums of 10 degrees of freedom: mean 50, standard deviation 10.
    assert chi_squared < 80


def test_the_same_seed_draws_the_same(template):
    first, second = (Space(template).sample(50, np.random.default_rng(3)) for _ in range(2))
    assert first == second


def test_moves_and_mixtures_stay_legal_and_moves_change_something(tasks_of):
    rng = np.random.default_rng(0)
    for kind in ("matmul", "conv2d_nchw", "softmax"):
        template = tasks_of(kind).root.tunable.templates[0]
        space = Space(template)
        parents = space.sample(20, rng)
        for parent, other in itertools.pairwise(parents):
            moved = space.neighbour(parent, rng)
            assert moved is not None
            assert moved != parent
            assert template.violations(moved) == []
            child = space.cross(parent, other, rng)
            assert child is None or template.violations(child) == []


def test_an_empty_space_gives_up_rather_than_hang(template):
    impossible = Constraint("never", knob_symbol("a") * knob_symbol("c") < 0)
    space = Space(ScheduleTemplate("none", template.dispatch, template.knobs, (impossible,), template.tiles))
    assert space.sample(1, np.random.default_rng(0)) == []
