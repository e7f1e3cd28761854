"""Conditions lowered to penalties: how far a point is from meeting a condition, smooth, zero where it holds.

With g the gap in integers between a relation's sides and where it begins to hold, a relation's penalty is
log(1 + g²): at least log 2 at every illegal integer point, and falling at a steady rate in log-knob space however
far away the point is. "k divides n" has its own gap, (k/π)·sin(π·n/k), which is the distance to the nearest multiple
whichever side it lies on. A conjunction adds penalties; a disjunction is a·b / (a + b), zero with either.
Felix (paper section 3.5) squares the violation of relaxed inequalities and has no disjunctions.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from felix_mlir.features.tape import Op, Tape, UnsupportedExpressionError


def lower_penalty(tape: Tape, condition: Any) -> int:
    """Append the penalty of a sympy Boolean; returns its node. Raises UnsupportedExpressionError."""
    if isinstance(condition, BooleanTrue | BooleanFalse):
        return tape.constant(int(isinstance(condition, BooleanFalse)))
    if isinstance(condition, sympy.And):
        return tape.fold(Op.ADD, (lower_penalty(tape, part) for part in condition.args))
    if isinstance(condition, sympy.Or):
        return tape.fold(Op.EITHER, (lower_penalty(tape, part) for part in condition.args))
    if isinstance(condition, sympy.Not):
        negated = sympy.to_nnf(condition)
        if not isinstance(negated, sympy.Not):
            return lower_penalty(tape, negated)
    if isinstance(condition, sympy.core.relational.Relational):
        return _relation(tape, condition)
    raise UnsupportedExpressionError(f"{type(condition).__name__} in the condition {condition}")


def _relation(tape: Tape, relation: Any) -> int:
    if isinstance(relation, sympy.Eq) and relation.rhs == 0 and isinstance(relation.lhs, sympy.Mod):
        # k/s divides n/d when k*d divides n*s.
        (n, d), (k, s) = (tape.integers(arg) for arg in relation.lhs.args)
        return tape.apply(Op.INDIVISIBILITY, tape.fold(Op.MULTIPLY, (n, s)), tape.fold(Op.MULTIPLY, (k, d)))
    a, b = tape.sides(relation)
    if isinstance(relation, sympy.Eq):
        return tape.apply(Op.DISTANCE, a, b)
    if isinstance(relation, sympy.Ne):
        return tape.apply(Op.COINCIDENCE, a, b)
    if isinstance(relation, sympy.Lt | sympy.Le):
        a, b = b, a
    # EXCESS(a, b) asks for a > b; a >= b is a > b - 1 on integers.
    if isinstance(relation, sympy.Ge | sympy.Le):
        b = tape.apply(Op.ADD, b, tape.constant(-1))
    return tape.apply(Op.EXCESS, a, b)
