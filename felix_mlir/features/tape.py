"""Sympy expressions lowered to a tape: a list of two-argument operations in which equal ones appear once.

Both evaluators (`exact`, `relaxed`) run the same tape. Lowering rewrites everything to a small core in which the
arguments of rounding, comparing and choosing are integers at integer knobs, because only then are "half a unit
off the jump" (see `relaxed`) and exact integer arithmetic well defined: `ceiling(x/y)` becomes the floor division
`(x + y - 1) // y`, and `x/y > z` becomes `x > y*z`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanFalse, BooleanTrue


class UnsupportedExpressionError(ValueError):
    """An expression holds something a tape cannot express; the message names it."""


class Op(StrEnum):
    """What a node computes. Conditions are 0 or 1; the last five are penalties (see `penalty`)."""

    CONSTANT = "constant"
    SYMBOL = "symbol"
    ADD = "add"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    POWER = "power"
    LOG = "log"
    FLOOR_DIVIDE = "floor_divide"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    GREATER = "greater"
    EQUAL = "equal"
    NOT = "not"
    AND = "and"
    OR = "or"
    SELECT = "select"
    EXCESS = "excess"
    DISTANCE = "distance"
    COINCIDENCE = "coincidence"
    INDIVISIBILITY = "indivisibility"
    EITHER = "either"


_CONDITIONS = (Op.GREATER, Op.EQUAL, Op.NOT, Op.AND, Op.OR)
_CLOSED_OVER_INTEGERS = (Op.ADD, Op.MULTIPLY, Op.MINIMUM, Op.MAXIMUM, Op.SELECT, Op.SYMBOL)
_ALWAYS_INTEGERS = (Op.FLOOR_DIVIDE, *_CONDITIONS)
_COMMUTATIVE = (Op.ADD, Op.MULTIPLY, Op.MINIMUM, Op.MAXIMUM, Op.EQUAL, Op.AND, Op.OR, Op.EITHER)


@dataclass(frozen=True)
class Node:
    """One operation on earlier nodes; `value` is a constant's, `name` a symbol's.

    `is_integral` says that it is an integer wherever the symbols are.
    """

    op: Op
    args: tuple[int, ...] = ()
    value: Fraction = Fraction(0)
    name: str = ""
    is_integral: bool = True

    @property
    def is_condition(self) -> bool:
        return self.op in _CONDITIONS


class Tape:
    """The nodes in an order in which arguments come first. Symbols stand for positive integers."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[tuple[Op, tuple[int, ...], Fraction, str], int] = {}
        self._lowered: dict[Any, int] = {}

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols that appear, sorted."""
        return tuple(sorted(node.name for node in self.nodes if node.op is Op.SYMBOL))

    def lower(self, expression: Any) -> int:
        """Append what `expression` (a sympy Expr or Boolean) needs; returns its node.

        Raises UnsupportedExpressionError.
        """
        # sympy takes True for 1 and 1.0 for 1 in dictionaries; conditions and numbers must not meet there.
        key = (type(expression), expression)
        if key not in self._lowered:
            self._lowered[key] = self._lower(expression)
        return self._lowered[key]

    def constant(self, value: int | Fraction) -> int:
        return self._add(Op.CONSTANT, (), Fraction(value))

    def apply(self, op: Op, *args: int) -> int:
        """Append one operation, unless it is there already."""
        return self._add(op, tuple(sorted(args)) if op in _COMMUTATIVE else args)

    def fold(self, op: Op, args: Iterable[int]) -> int:
        """Chain a commutative operation; the fixed order lets chains share their beginnings."""
        return reduce(lambda a, b: self.apply(op, a, b), sorted(args))

    def integers(self, expression: Any) -> tuple[int, int]:
        """Numerator and denominator of a ratio of integers; the denominator is positive."""
        if isinstance(expression, sympy.Mod):
            return self._remainder(expression)
        node = self.lower(expression)
        if self.nodes[node].is_integral:
            return node, self.constant(1)
        ratio: Any = sympy.together(expression)
        top, bottom = ratio.as_numer_denom()
        if not _is_positive(bottom):
            raise UnsupportedExpressionError(f"the denominator {bottom} is not known to be positive")
        numerator, denominator = self.lower(top), self.lower(bottom)
        if not (self.nodes[numerator].is_integral and self.nodes[denominator].is_integral):
            raise UnsupportedExpressionError(
                f"{expression} is not a ratio of integers: it cannot be rounded or compared"
            )
        return numerator, denominator

    def _add(self, op: Op, args: tuple[int, ...], value: Fraction = Fraction(0), name: str = "") -> int:
        key = (op, args, value, name)
        if key not in self._known:
            # Only what an operation computes with counts: the condition of a choice is 0 or 1 anyway.
            integral = (
                value.denominator == 1
                if op is Op.CONSTANT
                else op in _ALWAYS_INTEGERS
                or (op in _CLOSED_OVER_INTEGERS and all(self.nodes[arg].is_integral for arg in args))
                or (op is Op.POWER and self._is_natural_power(*args))
            )
            self._known[key] = len(self.nodes)
            self.nodes.append(Node(op, args, value, name, integral))
        return self._known[key]

    def _is_natural_power(self, base: int, exponent: int) -> bool:
        node = self.nodes[exponent]
        return self.nodes[base].is_integral and node.op is Op.CONSTANT and node.is_integral and node.value >= 0

    def _lower(self, e: Any) -> int:
        if isinstance(e, BooleanTrue | BooleanFalse):
            return self.apply(Op.EQUAL, self.constant(0), self.constant(0 if isinstance(e, BooleanTrue) else 1))
        if isinstance(e, sympy.Symbol):
            return self._add(Op.SYMBOL, (), name=e.name)
        if isinstance(e, sympy.Rational):
            return self.constant(Fraction(int(e.p), int(e.q)))
        if isinstance(e, sympy.Float):
            return self.constant(Fraction(float(e)))
        if isinstance(e, sympy.Add):
            return self.fold(Op.ADD, map(self.lower, e.args))
        if isinstance(e, sympy.Mul):
            return self._product(e.args)
        if isinstance(e, sympy.Pow):
            return self._product((e,))
        if isinstance(e, sympy.log):
            return self.apply(Op.LOG, self.lower(e.args[0]))
        if isinstance(e, sympy.floor | sympy.ceiling | sympy.Mod):
            return self._rounding(e)
        if isinstance(e, sympy.Min | sympy.Max):
            return self._extremum(Op.MINIMUM if isinstance(e, sympy.Min) else Op.MAXIMUM, e.args)
        if isinstance(e, sympy.Piecewise):
            return self._piecewise(e)
        if isinstance(e, sympy.core.relational.Relational):
            return self._relation(e)
        if isinstance(e, sympy.Not):
            return self.apply(Op.NOT, self.lower(e.args[0]))
        if isinstance(e, sympy.And | sympy.Or):
            return self.fold(Op.AND if isinstance(e, sympy.And) else Op.OR, map(self.lower, e.args))
        raise UnsupportedExpressionError(f"{type(e).__name__} in {e}")

    def _product(self, factors: Sequence[Any]) -> int:
        above: list[int] = []
        below: list[int] = []
        for factor in factors:
            base, exponent = factor.as_base_exp()
            if isinstance(factor, sympy.Rational) and factor.q != 1:
                if factor.p != 1:
                    above.append(self.constant(int(factor.p)))
                below.append(self.constant(int(factor.q)))
            elif exponent == 1 or isinstance(factor, sympy.Rational):
                above.append(self.lower(factor))
            elif exponent.is_number and exponent.is_negative:
                below.append(self._power(base, -exponent))
            else:
                above.append(self._power(base, exponent))
        top = self.fold(Op.MULTIPLY, above) if above else self.constant(1)
        return self.apply(Op.DIVIDE, top, self.fold(Op.MULTIPLY, below)) if below else top

    def _power(self, base: Any, exponent: Any) -> int:
        if exponent == 1:
            return self.lower(base)
        return self.apply(Op.POWER, self.lower(base), self.lower(exponent))

    def _rounding(self, e: Any) -> int:
        if isinstance(e, sympy.Mod):
            rest, bottom = self._remainder(e)
            return rest if bottom == self.constant(1) else self.apply(Op.DIVIDE, rest, bottom)
        n, k = self.integers(e.args[0])
        if self.nodes[k].op is Op.CONSTANT and self.nodes[k].value == 1:
            return n
        if isinstance(e, sympy.ceiling):
            n = self.fold(Op.ADD, (n, k, self.constant(-1)))
        return self.apply(Op.FLOOR_DIVIDE, n, k)

    def _remainder(self, e: Any) -> tuple[int, int]:
        """Numerator and denominator of a remainder: that of n/d by k/s is the remainder of n*s by k*d, over d*s."""
        (n, d), (k, s) = map(self.integers, e.args)
        one = self.constant(1)
        n, k = (a if b == one else self.apply(Op.MULTIPLY, a, b) for a, b in ((n, s), (k, d)))
        # One floor division serves quotient and remainder, so that they add up when relaxed, too.
        quotient = self.apply(Op.FLOOR_DIVIDE, n, k)
        covered = self.fold(Op.MULTIPLY, (quotient, k))
        rest = self.apply(Op.ADD, n, self.apply(Op.MULTIPLY, self.constant(-1), covered))
        bottom = d if s == one else s if d == one else self.apply(Op.MULTIPLY, d, s)
        return rest, bottom

    def _extremum(self, op: Op, args: Sequence[Any]) -> int:
        """Compare integers: ratios are brought to one denominator first."""
        parts = [self.integers(arg) for arg in args]
        one = self.constant(1)
        if all(bottom == one for _, bottom in parts):
            return self.fold(op, (top for top, _ in parts))
        common = self.fold(Op.MULTIPLY, (bottom for _, bottom in parts))
        scaled: list[int] = []
        for i, (top, _) in enumerate(parts):
            others = [bottom for j, (_, bottom) in enumerate(parts) if j != i]
            scaled.append(self.fold(Op.MULTIPLY, (top, *others)))
        return self.apply(Op.DIVIDE, self.fold(op, scaled), common)

    def _piecewise(self, e: Any) -> int:
        *branches, (last, otherwise) = e.args
        if not isinstance(otherwise, BooleanTrue):
            raise UnsupportedExpressionError(f"{e} has no value where none of its conditions holds")
        result = self.lower(last)
        for value, condition in reversed(branches):
            result = self.apply(Op.SELECT, self.lower(condition), self.lower(value), result)
        return result

    def _relation(self, e: Any) -> int:
        a, b = self.sides(e)
        if isinstance(e, sympy.Eq | sympy.Ne):
            equal = self.apply(Op.EQUAL, a, b)
            return self.apply(Op.NOT, equal) if isinstance(e, sympy.Ne) else equal
        if isinstance(e, sympy.Gt | sympy.Lt):
            return self.apply(Op.GREATER, *((a, b) if isinstance(e, sympy.Gt) else (b, a)))
        return self.apply(Op.NOT, self.apply(Op.GREATER, *((b, a) if isinstance(e, sympy.Ge) else (a, b))))

    def sides(self, relation: Any) -> tuple[int, int]:
        """Both sides of a relation, multiplied by their denominators: integers."""
        (a, p), (b, q) = self.integers(relation.lhs), self.integers(relation.rhs)
        one = self.constant(1)
        a = a if q == one else self.apply(Op.MULTIPLY, a, q)
        b = b if p == one else self.apply(Op.MULTIPLY, b, p)
        return a, b


def _is_positive(expression: Any) -> bool:
    """Whether an expression is known to be above 0, as sympy does not see of a window's `a + b - 1` of sizes."""
    if expression.is_positive:
        return True
    above = {size: 1 + sympy.Dummy(nonnegative=True) for size in _sizes(expression)}
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(sympy.expand(expression.xreplace(above)))]
    is_nonnegative = all(coefficient.is_nonnegative and rest.is_nonnegative for coefficient, rest in terms)
    return is_nonnegative and any(coefficient.is_positive and rest.is_positive for coefficient, rest in terms)


def _sizes(expression: Any) -> Iterator[Any]:
    """Yield the parts of a polynomial that are positive integers."""
    if expression.is_Add or expression.is_Mul or (expression.is_Pow and expression.exp.is_Integer):
        for part in expression.args:
            yield from _sizes(part)
    elif expression.is_positive and expression.is_integer and not expression.is_number:
        yield expression
