"""Constraints compiled: exact answers as the template gives them, penalties zero on exactly the legal points."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import sympy
import torch
from ops import KINDS

from felix_mlir.features.program import ConstraintProgram
from felix_mlir.schedule import Constraint, LegalSpace

X, Y = (sympy.Symbol(name, integer=True, positive=True) for name in "XY")
CONDITIONS = {
    "less": sympy.Lt(X * Y, 12),
    "at most": sympy.Le(X * Y, 12),
    "greater": X > Y,
    "at least": X >= 2 * Y,
    "equal": sympy.Eq(X, Y),
    "unequal": sympy.Ne(X, Y),
    "divides": sympy.Eq(sympy.Mod(X, Y), 0),
    "divides or whole": sympy.Or(sympy.Eq(sympy.Mod(X, Y), 0), sympy.Eq(X, 7)),
    "several": sympy.And(X > 2, sympy.Or(Y < 5, sympy.Eq(X, Y)), sympy.Not(sympy.Eq(X, 9))),
    "ratio": sympy.Lt(X / Y, sympy.Rational(3, 2)),
}
TEMPERATURES = (10.0, 1.0, 0.1, 1e-3, 0.0)


def check(program: ConstraintProgram, points: np.ndarray) -> None:
    holds = program.holds(points)
    at = torch.tensor(points, dtype=torch.float64)
    penalties = [program.penalties(at, temperature=t).numpy() for t in TEMPERATURES]
    distances = [np.abs(p - penalties[-1]) for p in penalties]
    for hotter, colder in pairwise(distances):
        assert (colder <= hotter + 1e-12).all()
    assert all((p >= 0).all() for p in penalties)
    assert (penalties[-1][holds] == 0).all()
    assert all((p[~holds] > 0.02).all() for p in penalties[1:])


@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_penalties_vanish_on_exactly_the_legal_points(name):
    points = np.array([[x, y] for x in range(1, 20) for y in range(1, 20)])
    program = ConstraintProgram([Constraint(name, CONDITIONS[name])], ("X", "Y"))
    expected = [bool(CONDITIONS[name].subs({X: int(x), Y: int(y)})) for x, y in points]
    assert program.holds(points)[:, 0].tolist() == expected
    check(program, points)


@pytest.mark.parametrize("name", sorted(CONDITIONS))
@pytest.mark.parametrize("temperature", [0.0, 0.5, 20.0])
def test_gradients_of_penalties_equal_finite_differences(name, temperature):
    program = ConstraintProgram([Constraint(name, CONDITIONS[name])], ("X", "Y"))
    points = 1.05 + 20 * torch.rand(40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: program.penalties(p, temperature=temperature), points.requires_grad_())


def test_descending_a_penalty_reaches_a_legal_point():
    """From 5 and 17, both real, to a multiple: the penalty alone shows the way."""
    program = ConstraintProgram([Constraint("divides", sympy.Eq(sympy.Mod(X, Y), 0))], ("X", "Y"))
    logs = torch.log(torch.tensor([[17.0, 5.0]], dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.Adam([logs], lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        penalty = program.penalties(torch.exp(logs), temperature=0.1).sum()
        penalty.backward()
        optimizer.step()
    assert float(penalty.detach()) < 1e-3


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_constraints_of_templates(kind, tasks_of):
    for task in tasks_of(kind).tasks:
        for template in task.tunable.templates if task.tunable else ():
            names = [knob.name for knob in template.knobs]
            program = ConstraintProgram(template.constraints, names)
            rng = np.random.default_rng(0)
            drawn = LegalSpace(template).draw(20, rng)
            legal = np.array([[values[name] for name in names] for values in drawn])
            anywhere = np.stack([rng.choice(knob.options, size=100) for knob in template.knobs], axis=1)
            for points in (legal, anywhere):
                np.testing.assert_array_equal(program.holds(points), template.satisfied(points))
                check(program, points)
