"""Relaxed GPU features: they fall to the exact ones, have correct gradients, and stay finite."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from gpu_cases import CASES, MACHINE
from test_features_relaxed import assert_falls_to_exact

from felix_mlir.features import Program


@cache
def program(case: str) -> Program:
    return CASES[case].program()


def extents(case: str) -> list[int]:
    return [CASES[case].op.extents[int(knob.rsplit("_d", 1)[1])] for knob in program(case).knobs]


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_feature_falls_to_the_exact_value_at_integers(case):
    rng = np.random.default_rng(2)
    points = np.stack([rng.integers(1, extent + 3, size=20) for extent in extents(case)], axis=1)
    assert_falls_to_exact(program(case), points, MACHINE.values())


@pytest.mark.parametrize("temperature", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("case", sorted(CASES))
def test_gradients_equal_finite_differences(case, temperature):
    """In log-knob space, at points off the lattice; second differences bound the error of first ones."""
    of_case, values = program(case), MACHINE.values()
    largest = torch.tensor(extents(case), dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    for _ in range(2):
        logs = torch.log(1.03 + largest * torch.rand(len(largest), generator=generator, dtype=torch.float64))
        _, gradient = of_case.gradients(torch.exp(logs), values, temperature=temperature)
        step = 1e-6
        offsets = torch.cat([torch.zeros(1, len(logs)), torch.eye(len(logs)), -torch.eye(len(logs))]).double()
        at = of_case.relaxed(torch.exp(logs + step * offsets), values, temperature=temperature)
        here, up, down = at[0], at[1 : 1 + len(logs)].T, at[1 + len(logs) :].T
        numeric = (up - down) / (2 * step)
        curvature = (up + down - 2 * here[:, None]).abs() / step
        tolerance = 1e-5 * (1 + gradient.abs() + here.abs()[:, None]) + curvature
        wrong = (numeric - gradient).abs() > tolerance
        assert not wrong.any(), [of_case.names[i] for i in wrong.any(dim=1).nonzero()[:, 0]]


@pytest.mark.parametrize("case", ["matmul_shared", "transpose", "window", "intrinsic"])
def test_features_are_finite_everywhere(case):
    of_case = program(case)
    generator = torch.Generator().manual_seed(5)
    scattered = torch.exp(5 * torch.rand(200, len(of_case.knobs), generator=generator, dtype=torch.float64) - 0.5)
    for points in (scattered, scattered.round().clamp(min=1)):
        logs = torch.log(points).requires_grad_()
        for temperature in (0.0, 1.0, 1e9):
            values = of_case.relaxed(torch.exp(logs), MACHINE.values(), temperature=temperature)
            (gradient,) = torch.autograd.grad(values.sum(), logs)
            assert torch.isfinite(values).all()
            assert torch.isfinite(gradient).all()
