"""IREE's own rules for a pipeline, read from `iree_codegen.smt.constraints` ops into sympy conditions.

Such an op lists *knobs* and *assertions*: Boolean expressions over the knobs, each with a sentence for a reader. Sizes
of the problem are its arguments, which equal constants of the dispatch. `smt.declare_fun` names an integer that must
exist; `without_existing` finds it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy
from iree.compiler import ir

from felix_mlir.schedule.dispatch import UnsupportedDispatchError, walk
from felix_mlir.schedule.template import Constraint, knob_symbol

CONSTRAINTS = "iree_codegen.smt.constraints"
_CONSTRAINED = "the compiler states a constraint with"


@dataclass(frozen=True)
class Rules:
    """Assertions over the knobs in `names`; `existing` are the integers that must exist, besides."""

    names: tuple[str, ...]
    existing: tuple[str, ...]
    assertions: tuple[Constraint, ...]


def constraints_ops(module: ir.Operation) -> list[ir.Operation]:
    """Return the constraints ops of a module, in program order."""
    return [op for op in walk(module) if op.name == CONSTRAINTS]


def read_rules(op: ir.Operation, fixed: Mapping[str, int]) -> Rules:
    """Read a constraints op with the knobs in `fixed` set to what they are there.

    Every other knob must be at least 1. Raises UnsupportedDispatchError for an op it does not know.
    """
    block = op.regions[0].blocks[0]
    values: dict[ir.Value, Any] = {}
    for argument, size in zip(block.arguments, op.operands, strict=True):
        values[argument] = sympy.Integer(_constant(size))
    names: list[str] = []
    existing: list[str] = []
    assertions: list[Constraint] = []
    for inner in (view.operation for view in block):
        operands = [values[operand] for operand in inner.operands]
        if inner.name == "iree_codegen.smt.assert":
            message = ir.StringAttr(inner.attributes["msg"]).value.format(*operands[1:])
            assertions.append(Constraint(message, operands[0]))
            continue
        if inner.name == "iree_codegen.smt.knob":
            name = ir.StringAttr(inner.attributes["name"]).value
            values[inner.results[0]] = sympy.Integer(fixed[name]) if name in fixed else knob_symbol(name)
            names += [] if name in fixed or name in names else [name]
        elif inner.name == "smt.declare_fun":
            existing.append(ir.StringAttr(inner.attributes["namePrefix"]).value)
            values[inner.results[0]] = knob_symbol(existing[-1])
        else:
            values[inner.results[0]] = _evaluate(inner, operands)
    return Rules(tuple(names), tuple(existing), tuple(assertions))


def without_existing(rules: Rules) -> tuple[Constraint, ...]:
    """Return the assertions as conditions over knobs alone.

    An integer that must exist is a factor in an equation of products: it does where the other factors divide the other
    side. Raises UnsupportedDispatchError where it is anything else.
    """
    assertions = list(rules.assertions)
    for name in rules.existing:
        symbol = knob_symbol(name)
        index, whole, others = next(_equations_for(symbol, assertions), (-1, sympy.S.One, sympy.S.One))
        if index < 0:
            raise UnsupportedDispatchError(f"{_CONSTRAINED} an unknown, {name}, that no equation gives")
        # What it stands for need not be rounded: where the quotient is no integer the first condition fails.
        assertions[index] = Constraint(assertions[index].message, sympy.Eq(sympy.Mod(whole, others), 0))
        assertions = [Constraint(a.message, a.condition.subs(symbol, whole / others)) for a in assertions]
    return tuple(assertions)


def _equations_for(symbol: sympy.Symbol, assertions: list[Constraint]) -> Iterator[tuple[int, Any, Any]]:
    """Assertions `whole == symbol * others`, with their number."""
    for index, assertion in enumerate(assertions):
        condition = assertion.condition
        if isinstance(condition, sympy.Eq):
            for product, whole in ((condition.lhs, condition.rhs), (condition.rhs, condition.lhs)):
                others = product / symbol
                if product.has(symbol) and not whole.has(symbol) and not others.has(symbol):
                    yield index, whole, others


def without_given(
    assertions: tuple[Constraint, ...], names: Iterable[str]
) -> tuple[tuple[Constraint, ...], dict[str, sympy.Expr]]:
    """Return the assertions without those knobs of `names` that an equation gives, and what it gives them.

    Values are constants or expressions of the knobs that are left. Assertions that hold whatever their values are
    left out, and so are repetitions.
    """
    given: dict[str, Any] = {}
    for name in names:
        symbol = knob_symbol(name)
        value: Any = next(_values_of(symbol, assertions), None)
        if value is not None:
            given = {known: expr.subs(symbol, value) for known, expr in given.items()} | {name: value}
            assertions = tuple(Constraint(a.message, a.condition.subs(symbol, value)) for a in assertions)
    distinct = {a.condition: a for a in reversed(assertions) if a.condition != sympy.true}
    return tuple(reversed(distinct.values())), given


def _values_of(symbol: sympy.Symbol, assertions: tuple[Constraint, ...]) -> Iterator[Any]:
    for assertion in assertions:
        condition = assertion.condition
        if isinstance(condition, sympy.Eq):
            for side, other in ((condition.lhs, condition.rhs), (condition.rhs, condition.lhs)):
                if side == symbol and not other.has(symbol):
                    yield other


_COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
# Divisors are positive, where the remainder and quotient of SMT-LIB are those of rounding down.
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "smt.int.add": sympy.Add,
    "smt.int.mul": sympy.Mul,
    "smt.int.sub": lambda a, b: a - b,
    "smt.int.div": lambda a, b: sympy.floor(a / b),
    "smt.int.mod": sympy.Mod,
    "smt.int.neg": lambda a: -a,
    "smt.int.abs": sympy.Abs,
    "smt.not": sympy.Not,
    "smt.and": sympy.And,
    "smt.or": sympy.Or,
    "smt.implies": sympy.Implies,
    "smt.ite": lambda condition, a, b: sympy.Piecewise((a, condition), (b, True)),
}


def _evaluate(op: ir.Operation, operands: list[Any]) -> Any:
    if op.name in _OPERATIONS:
        return _OPERATIONS[op.name](*operands)
    match op.name:
        case "smt.int.constant":
            return sympy.Integer(ir.IntegerAttr(op.attributes["value"]).value)
        case "smt.bool.constant":
            return sympy.true if ir.BoolAttr(op.attributes["value"]).value else sympy.false
        case "smt.eq" | "smt.distinct":
            # A sympy symbol could be a Boolean: the type of the operands says what they are.
            equal: Any = sympy.Equivalent if str(op.operands[0].type) == "!smt.bool" else sympy.Eq
            pairs = itertools.combinations(operands, 2)
            return sympy.And(*(equal(a, b) if op.name == "smt.eq" else sympy.Not(equal(a, b)) for a, b in pairs))
        case "smt.int.cmp":
            return _COMPARISONS[ir.IntegerAttr(op.attributes["pred"]).value](*operands)
        case "iree_codegen.smt.lookup":
            keys, found = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("keys", "values"))
            cases = [(sympy.Integer(v), sympy.Eq(operands[0], k)) for k, v in zip(keys, found, strict=True)]
            return reduce(lambda rest, case: sympy.Piecewise(case, (rest, True)), reversed(cases), cases[-1][0])
        case _:
            raise UnsupportedDispatchError(f"{_CONSTRAINED} {op.name}, which the templates cannot read")


def _constant(value: ir.Value) -> int:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        raise UnsupportedDispatchError("a loop has a dynamic extent; only static shapes are tuned")
    return ir.IntegerAttr(owner.attributes["value"]).value
