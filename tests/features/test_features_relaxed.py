"""Relaxed values: they fall to the exact ones at integers as the temperature falls, and have correct gradients."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import sympy
import torch
from feature_cases import MACHINE, SMALL_CACHES, program_of, random_knobs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nests import NAMED, knobs_of
from random_nests import ops

from felix_mlir.features.program import Program
from felix_mlir.features.relaxed import mixing_weight
from felix_mlir.features.tape import UnsupportedExpressionError

X, Y, N = (sympy.Symbol(name, integer=True, positive=True) for name in "XYN")
TEMPERATURES = (10.0, 1.0, 0.3, 0.1, 0.01, 1e-3, 1e-5, 0.0)
# One of each construct, ratios and nested forms included.
CONSTRUCTS: dict[str, sympy.Basic] = {
    "ceiling": sympy.ceiling(N / X),
    "floor": sympy.floor((N + Y) / X),
    "floor of a ratio": sympy.floor(N / (X * Y) + sympy.Rational(1, 3)),
    "floor over a window": sympy.floor(8 * N / (2 * X * (sympy.Min(3, X) + Y - 1) + Y)),
    "nested": sympy.ceiling(sympy.ceiling(N / X) / Y),
    "mod": sympy.Mod(N, X),
    "nested mod": sympy.Mod(sympy.Mod(N, X), Y),
    "mod of ratios": sympy.Mod(N / X, Y / 3),
    "mod of a ratio compared": sympy.Piecewise((X, sympy.Eq(sympy.Mod(N / X, Y), 0)), (Y, True)),
    "min": sympy.Min(X, Y, N),
    "max": sympy.Max(X, Y + 3),
    "max of ratios": sympy.Max(X / Y, sympy.Rational(3, 2)),
    "greater": sympy.Piecewise((1, X > 1), (0, True)),
    "greater or equal": sympy.Piecewise((X, X >= Y), (Y**2, True)),
    "equal": sympy.Piecewise((X, sympy.Eq(X, Y)), (7, True)),
    "unequal": sympy.Piecewise((X, sympy.Ne(X, 2 * Y)), (7, True)),
    "logic": sympy.Piecewise((X, sympy.And(X > 2, sympy.Or(Y < 5, sympy.Not(sympy.Eq(X, Y))))), (7, True)),
    "ratio compared": sympy.Piecewise((X, sympy.Gt(X / Y, sympy.Rational(3, 2))), (Y, True)),
    "log": sympy.log(X * Y) / X + sympy.sqrt(Y) + X ** sympy.Rational(-3, 2),
}


def constructs() -> Program:
    return Program(CONSTRUCTS.items(), ("X", "Y"))


def errors_by_temperature(program: Program, points: np.ndarray, shapes: dict[str, int]) -> list[np.ndarray]:
    exact = program.exact_matrix(points, shapes)
    at = torch.tensor(points, dtype=torch.float64)
    scale = 1.0 + np.abs(exact)
    return [np.abs(program.relaxed(at, shapes, temperature=t).numpy() - exact) / scale for t in TEMPERATURES]


def assert_falls_to_exact(program: Program, points: np.ndarray, shapes: dict[str, int]) -> None:
    errors = errors_by_temperature(program, points, shapes)
    for hotter, colder in pairwise(errors):
        worse = (colder > hotter + 1e-12).any(axis=0)
        assert not worse.any(), [name for name, bad in zip(program.names, worse, strict=True) if bad]
    assert errors[-1].max() < 1e-12
    assert (errors[-2] <= 1.1 * TEMPERATURES[-2] / mixing_weight(TEMPERATURES[0]) * errors[0] + 1e-12).all()


def test_every_construct_falls_to_the_exact_value_at_integers():
    points = np.array([[x, y] for x in range(1, 25) for y in range(1, 25)])
    for n in (1, 2, 12, 50):
        assert_falls_to_exact(constructs(), points, {"N": n})


def test_exact_values_are_those_of_sympy():
    program = constructs()
    points = np.array([[x, y] for x in (1, 2, 3, 7, 12) for y in (1, 2, 5, 8)])
    values = program.exact_matrix(points, {"N": 12})
    for (x, y), row in zip(points, values, strict=True):
        for expression, value in zip(CONSTRUCTS.values(), row, strict=True):
            assert float(expression.subs({X: int(x), Y: int(y), N: 12})) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_feature_falls_to_the_exact_value_at_integers(name):
    op = NAMED[name]
    names = knobs_of(op)
    points = np.array([[knobs[k] for k in names] for knobs in random_knobs(op, 30, seed=2)])
    for machine in (MACHINE, SMALL_CACHES):
        assert_falls_to_exact(program_of(op), points, machine)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops(), st.integers(0, 1000))
def test_features_of_any_nest_fall_to_the_exact_value(op, seed):
    names = knobs_of(op)
    points = np.array([[knobs[k] for k in names] for knobs in random_knobs(op, 10, seed)]).reshape(10, len(names))
    if names:
        assert_falls_to_exact(program_of(op), points, SMALL_CACHES)


def test_a_gate_is_shut_where_the_tile_is_one():
    """Felix's smoothed "tile > 1" is 0.94 at tile = 1 with four primes, and stays there."""
    program = Program([("gate", CONSTRUCTS["greater"])], ("X",))
    ones, twos = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    for temperature, bound in ((1e9, 0.15), (1.0, 0.08), (0.1, 0.015), (0.0, 0.0)):
        assert float(program.relaxed(ones, temperature=temperature)) <= bound
        assert float(program.relaxed(twos, temperature=temperature)) >= 1 - 1.5 * bound


@pytest.mark.parametrize("temperature", [0.0, 0.5, 20.0])
def test_gradients_of_constructs_equal_finite_differences(temperature):
    generator = torch.Generator().manual_seed(0)
    points = 1.05 + 30 * torch.rand(40, 2, generator=generator, dtype=torch.float64)
    program = constructs()
    assert torch.autograd.gradcheck(
        lambda p: program.relaxed(p, {"N": 50}, temperature=temperature), points.requires_grad_(), atol=1e-5
    )


@pytest.mark.parametrize("temperature", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("name", sorted(NAMED))
def test_gradients_of_features_equal_finite_differences(name, temperature):
    """In log-knob space, at points off the lattice; second differences bound the error of first ones."""
    program = program_of(NAMED[name])
    generator = torch.Generator().manual_seed(3)
    extents = torch.tensor([NAMED[name].extents[int(k.rsplit("_d", 1)[1])] for k in program.knobs])
    for _ in range(3):
        logs = torch.log(1.03 + extents * torch.rand(len(extents), generator=generator, dtype=torch.float64))
        _, gradient = program.gradients(torch.exp(logs), SMALL_CACHES, temperature=temperature)
        step = 1e-6
        offsets = torch.cat([torch.zeros(1, len(logs)), torch.eye(len(logs)), -torch.eye(len(logs))]).double()
        values = program.relaxed(torch.exp(logs + step * offsets), SMALL_CACHES, temperature=temperature)
        here, up, down = values[0], values[1 : 1 + len(logs)].T, values[1 + len(logs) :].T
        numeric = (up - down) / (2 * step)
        curvature = (up + down - 2 * here[:, None]).abs() / step
        tolerance = 1e-5 * (1 + gradient.abs() + here.abs()[:, None]) + curvature
        wrong = (numeric - gradient).abs() > tolerance
        assert not wrong.any(), [program.names[i] for i in wrong.any(dim=1).nonzero()[:, 0]]


@pytest.mark.parametrize("name", ["matmul", "conv_2d_strided", "reduction"])
def test_relaxed_features_are_finite_everywhere(name):
    program = program_of(NAMED[name])
    generator = torch.Generator().manual_seed(5)
    # From below one to far beyond every extent, and on the lattice, where sharp steps begin and end.
    scattered = torch.exp(6 * torch.rand(200, len(program.knobs), generator=generator, dtype=torch.float64) - 0.5)
    for points in (scattered, scattered.round().clamp(min=1)):
        logs = torch.log(points).requires_grad_()
        for temperature in (0.0, 1.0, 1e9):
            values = program.relaxed(torch.exp(logs), MACHINE, temperature=temperature)
            (gradient,) = torch.autograd.grad(values.sum(), logs)
            assert torch.isfinite(values).all()
            assert torch.isfinite(gradient).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 1 << 40), st.integers(1, 1 << 20))
def test_rounding_is_exact_for_large_integers(n, k):
    program = Program([("up", sympy.ceiling(N / X)), ("down", sympy.floor(N / X)), ("rest", sympy.Mod(N, X))], ("X",))
    exact = program.exact({"X": k}, {"N": n})
    assert (int(exact["up"]), int(exact["down"]), int(exact["rest"])) == (-(-n // k), n // k, n % k)
    relaxed = program.relaxed(torch.tensor([[float(k)]], dtype=torch.float64), {"N": n}, temperature=0.0)
    assert relaxed[0].tolist() == [-(-n // k), n // k, n % k]


def test_integer_results_are_integers_and_overflow_is_refused():
    program = Program([("a", X * Y + sympy.ceiling(X / Y)), ("b", X / Y), ("c", X > Y)], ("X", "Y"))
    values = program.exact(np.array([[7, 2], [4, 4]]))
    assert values["a"].dtype == np.int64
    assert values["a"].tolist() == [18, 17]
    assert values["b"].tolist() == [3.5, 1.0]
    assert values["c"].tolist() == [True, False]
    with pytest.raises(OverflowError):
        Program([("cube", X**2 * Y)], ("X", "Y")).exact({"X": 1 << 31, "Y": 1 << 10})


def test_equal_subexpressions_are_evaluated_once():
    trips = sympy.ceiling(N / X)
    alone = Program([("a", trips * Y)], ("X", "Y"))
    both = Program([("a", trips * Y), ("b", trips + Y), ("again", trips * Y)], ("X", "Y"))
    assert len(both.tape.nodes) == len(alone.tape.nodes) + 1


@pytest.mark.parametrize("expression", [sympy.sin(X), sympy.floor(sympy.log(X)), sympy.floor(N / (X - Y))])
def test_what_a_program_cannot_hold_is_refused(expression):
    with pytest.raises(UnsupportedExpressionError):
        Program([("bad", expression)], ("X",))


def test_a_missing_shape_is_named():
    with pytest.raises(KeyError, match="no value for N"):
        constructs().exact({"X": 1, "Y": 1})
