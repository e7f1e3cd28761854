"""Programs: named expressions or constraints compiled once, evaluated exactly at integers or relaxed at reals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from felix_mlir.features.exact import evaluate_exact
from felix_mlir.features.penalty import lower_penalty
from felix_mlir.features.relaxed import Relaxation
from felix_mlir.features.tape import Tape
from felix_mlir.schedule import Constraint

Points = Tensor | Mapping[str, Tensor]
Shapes = Mapping[str, int]


class _Inputs:
    """Which symbols are knobs, in the order of a point's columns; every other symbol is a shape or a limit."""

    def __init__(self, tape: Tape, knobs: Sequence[str]) -> None:
        self.knobs = tuple(knobs)
        self.others = tuple(name for name in tape.symbols if name not in self.knobs)

    def exact(self, points: np.ndarray | Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
        columns = points if isinstance(points, Mapping) else {k: points[:, i] for i, k in enumerate(self.knobs)}
        return {**self._named(shapes), **columns}

    def relaxed(self, points: Points, shapes: Shapes) -> dict[str, Tensor | int]:
        columns = points if isinstance(points, Mapping) else dict(zip(self.knobs, points.unbind(1), strict=True))
        return {**self._named(shapes), **columns}

    def _named(self, shapes: Shapes) -> dict[str, int]:
        missing = [name for name in self.others if name not in shapes]
        if missing:
            raise KeyError(f"no value for {', '.join(missing)}")
        return {name: int(shapes[name]) for name in self.others}


class Program:
    """Named expressions over knobs and other symbols (shapes, machine limits).

    Build it once per structure: other symbols get their values at each call. A point's knobs are columns in the
    order of `knobs`. Raises UnsupportedExpressionError for an expression outside the language of `tape`.
    """

    def __init__(self, expressions: Iterable[tuple[str, Any]], knobs: Sequence[str]) -> None:
        named = list(expressions)
        self.tape = Tape()
        self.names = tuple(name for name, _ in named)
        self._outputs = [self.tape.lower(expression) for _, expression in named]
        self._inputs = _Inputs(self.tape, knobs)
        self._relaxation = Relaxation(self.tape, knobs)

    @property
    def knobs(self) -> tuple[str, ...]:
        return self._inputs.knobs

    @property
    def shapes(self) -> tuple[str, ...]:
        """The symbols that are not knobs: each needs a value at every call."""
        return self._inputs.others

    def exact(self, points: np.ndarray | Mapping[str, Any], shapes: Shapes | None = None) -> dict[str, np.ndarray]:
        """Evaluate at integer points: [n, knobs], or an integer or array per knob.

        Returns an array per name, of integers where the expression is one at all integers, else float64 (bool for
        conditions); one that depends on no knob has no axis. Raises OverflowError beyond 64 bits.
        """
        values = evaluate_exact(self.tape, self._inputs.exact(points, shapes or {}), self._outputs)
        return dict(zip(self.names, values, strict=True))

    def exact_matrix(self, points: np.ndarray, shapes: Shapes | None = None) -> np.ndarray:
        """Evaluate at integer points [n, knobs]; returns float64 [n, names]."""
        matrix = np.empty((len(points), len(self.names)))
        for column, values in enumerate(self.exact(points, shapes).values()):
            matrix[:, column] = values
        return matrix

    def relaxed(self, points: Points, shapes: Shapes | None = None, *, temperature: float) -> Tensor:
        """Evaluate at real points [batch, knobs] (or a [batch] tensor per knob), all positive; use float64.

        Returns [batch, names], differentiable once. `temperature` >= 0: see `relaxed`.
        """
        return self._relaxation.evaluate(self._inputs.relaxed(points, shapes or {}), self._outputs, temperature)

    def gradients(self, point: Tensor, shapes: Shapes | None = None, *, temperature: float) -> tuple[Tensor, Tensor]:
        """Relaxed values [names] at one point [knobs] and their derivatives by the log of each knob [names, knobs]."""
        # One copy of the point per name: a single backward pass gives every row.
        logs = torch.log(point.detach()).repeat(len(self.names), 1).requires_grad_()
        values = self.relaxed(torch.exp(logs), shapes, temperature=temperature).diagonal()
        if not values.requires_grad:
            return values, torch.zeros_like(logs)
        (rows,) = torch.autograd.grad(values.sum(), logs)
        return values.detach(), rows


class ConstraintProgram:
    """The constraints of a template: exact booleans at integers, penalties at reals.

    A penalty is >= 0, tends to 0 with the temperature at exactly the legal integer points, and stays positive at
    illegal ones (see `penalty`).
    """

    def __init__(self, constraints: Sequence[Constraint], knobs: Sequence[str]) -> None:
        self.messages = tuple(constraint.message for constraint in constraints)
        names = [str(i) for i in range(len(constraints))]
        conditions = [constraint.condition for constraint in constraints]
        self._exact = Program(zip(names, conditions, strict=True), knobs)
        self._tape = Tape()
        self._outputs = [lower_penalty(self._tape, condition) for condition in conditions]
        self._inputs = _Inputs(self._tape, knobs)
        self._relaxation = Relaxation(self._tape, knobs)

    def holds(self, points: np.ndarray, shapes: Shapes | None = None) -> np.ndarray:
        """Evaluate at integer points [n, knobs]; returns booleans [n, constraints]."""
        if not self.messages:
            return np.ones((len(points), 0), dtype=bool)
        return self._exact.exact_matrix(points, shapes).astype(bool)

    def penalties(self, points: Tensor, shapes: Shapes | None = None, *, temperature: float) -> Tensor:
        """Evaluate at real points [batch, knobs]; returns penalties [batch, constraints]."""
        if not self.messages:
            return points.new_zeros(len(points), 0)
        return self._relaxation.evaluate(self._inputs.relaxed(points, shapes or {}), self._outputs, temperature)
