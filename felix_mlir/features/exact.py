"""A tape evaluated exactly at integers, with numpy.

Nodes that are integers at integer symbols are computed in 64-bit integer arithmetic (a magnitude of 2**63 is
refused), the others in float64 from exact integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from felix_mlir.features.tape import Node, Op, Tape

_LARGEST = 2.0**62


def evaluate_exact(tape: Tape, values: Mapping[str, Any], wanted: Sequence[int]) -> list[np.ndarray]:
    """Evaluate the nodes `wanted`; `values` gives every symbol an integer or an array of integers.

    Arrays broadcast. Raises OverflowError when an integer leaves 64 bits and KeyError for a missing symbol.
    """
    results: list[Any] = []
    # The unused branch of a choice may divide by zero.
    with np.errstate(divide="ignore", invalid="ignore"):
        for node in tape.nodes:
            results.append(compute(node, [results[arg] for arg in node.args], values))
    return [np.asarray(results[index]) for index in wanted]


def compute(node: Node, args: Sequence[Any], values: Mapping[str, Any]) -> Any:
    """Compute one node (no penalty) from its arguments' exact values."""
    match node.op:
        case Op.CONSTANT:
            return int(node.value) if node.is_integral else float(node.value)
        case Op.SYMBOL:
            return np.asarray(values[node.name], dtype=np.int64)
        case Op.ADD:
            return args[0] + args[1]
        case Op.MULTIPLY:
            return _checked(args[0] * args[1], args)
        case Op.DIVIDE:
            return np.true_divide(args[0], args[1])
        case Op.POWER:
            return _power(node, args)
        case Op.LOG:
            return np.log(args[0])
        case Op.FLOOR_DIVIDE:
            return np.floor_divide(args[0], args[1])
        case Op.MINIMUM:
            return np.minimum(args[0], args[1])
        case Op.MAXIMUM:
            return np.maximum(args[0], args[1])
        case Op.GREATER:
            return np.greater(args[0], args[1])
        case Op.EQUAL:
            return np.equal(args[0], args[1])
        case Op.NOT:
            return np.logical_not(args[0])
        case Op.AND:
            return np.logical_and(args[0], args[1])
        case Op.OR:
            return np.logical_or(args[0], args[1])
        case Op.SELECT:
            return np.where(args[0], args[1], args[2])
        case Op.EXCESS | Op.DISTANCE | Op.COINCIDENCE | Op.INDIVISIBILITY | Op.EITHER:
            raise ValueError(f"{node.op} is a penalty: it has no exact value")


def _power(node: Node, args: Sequence[Any]) -> Any:
    if node.is_integral:
        return _checked(np.power(args[0], args[1]), [np.power(np.asarray(args[0], dtype=np.float64), args[1]), 1])
    return np.power(np.asarray(args[0], dtype=np.float64), args[1])


def _checked(product: Any, factors: Sequence[Any]) -> Any:
    """Refuse a product that wrapped around: its size is known well enough from float64 factors."""
    if np.asarray(product).dtype.kind == "i":
        size = np.abs(np.multiply(*(np.asarray(f, dtype=np.float64) for f in factors)))
        if size.size and float(size.max()) > _LARGEST:
            raise OverflowError("a feature value does not fit in 64 bits")
    return product
