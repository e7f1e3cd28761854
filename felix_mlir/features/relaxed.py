"""A tape evaluated at real knobs, differentiably, with torch.

A value is computed twice in one pass, *sharp* and *blurred* (see `smooth`), and the result is

    relaxed = sharp + w * (blurred - sharp),   w = T / (1 + T).

At integer points the sharp value is exact, whatever is composed of what, so |relaxed - exact| = w * |blurred -
exact|: it falls with the temperature T for every expression, which no family of sigmoids of width T, applied inside
products and differences, would guarantee. At T = 0 the relaxed function passes through the exact values and its
slopes stay those between neighbouring integers; at high T it is the trend. (Felix, section 3.4 and method notes
1.8, has one fixed width and a gate of 0.94 where the exact one is 0.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from felix_mlir.features.exact import compute
from felix_mlir.features.smooth import both
from felix_mlir.features.tape import Node, Op, Tape

# Keeps the penalty of "this or that" defined where both hold.
_EITHER = 1e-6
# A size below this counts as 0 where it has to divide another: none of a tile, a quotient may be.
_ZERO_SIZE = 0.5
# Which smooth function stands for an operation.
_SMOOTH = {
    Op.FLOOR_DIVIDE: "floor",
    Op.GREATER: "greater",
    Op.EQUAL: "greater",
    Op.MAXIMUM: "maximum",
    Op.MINIMUM: "maximum",
}


def mixing_weight(temperature: float) -> float:
    """Share of the blurred value at a temperature >= 0."""
    return temperature / (1.0 + temperature) if math.isfinite(temperature) else 1.0


class Relaxation:
    """A tape prepared for relaxed evaluation at tensors of the symbols `real`; all others have integer values.

    Nodes that do not depend on `real` are computed exactly. The smooth operations of one rank, none of which needs
    another's result, are evaluated together: one call on a wide tensor in place of a hundred narrow ones.
    """

    def __init__(self, tape: Tape, real: Sequence[str]) -> None:
        self._nodes = tape.nodes
        self._rounds: dict[int, tuple[dict[str, list[int]], list[int]]] = defaultdict(lambda: (defaultdict(list), []))
        self._fixed: list[int] = []
        ranks: list[int] = []  # -1 for what depends on integers alone
        for index, node in enumerate(tape.nodes):
            rank = max((ranks[arg] for arg in node.args), default=-1)
            if node.name in real or node.op in _PENALTIES:
                rank = max(rank, 0)
            if rank < 0:
                self._fixed.append(index)
            elif node.op in _SMOOTH:
                rank += 1
                self._rounds[rank][0][_SMOOTH[node.op]].append(index)
            else:
                self._rounds[rank][1].append(index)
            ranks.append(rank)

    def evaluate(self, values: Mapping[str, Tensor | int], wanted: Sequence[int], temperature: float) -> Tensor:
        """Evaluate the nodes `wanted`; tensors are [batch], of positive reals. Returns [batch, wanted]."""
        batch = next(value for value in values.values() if isinstance(value, Tensor))
        results: list[Any] = [None] * len(self._nodes)
        for index in self._fixed:
            node = self._nodes[index]
            results[index] = _plain(compute(node, [results[arg] for arg in node.args], values))
        for rank in sorted(self._rounds):
            together, others = self._rounds[rank]
            for name, indices in together.items():
                self._evaluate_together(name, indices, results, batch)
            for index in others:
                node = self._nodes[index]
                if node.op is Op.SYMBOL:
                    results[index] = torch.as_tensor(values[node.name]).unsqueeze(0)
                else:
                    results[index] = _relax(node, [results[arg] for arg in node.args], batch)
        return self._mix([results[index] for index in wanted], batch, mixing_weight(temperature))

    def _evaluate_together(self, name: str, indices: Sequence[int], results: list[Any], batch: Tensor) -> None:
        pairs: list[tuple[Any, Any]] = []
        for index in indices:
            a, b = (results[arg] for arg in self._nodes[index].args)
            if self._nodes[index].op is Op.EQUAL:
                pairs.append((a, b - 1.0))
            pairs.append((a, b))
        a, b = (_rows(column, batch) for column in zip(*pairs, strict=True))
        values = iter(both(name, a, b).unbind(1))
        for index in indices:
            value = next(values)
            match self._nodes[index].op:
                case Op.EQUAL:
                    # a > b - 1 and not a > b
                    value = value - next(values)
                case Op.MINIMUM:
                    first, second = (results[arg] for arg in self._nodes[index].args)
                    value = first + second - value
                case _:
                    pass
            results[index] = value

    @staticmethod
    def _mix(values: Sequence[Any], batch: Tensor, weight: float) -> Tensor:
        columns: list[Tensor] = []
        for value in values:
            if not isinstance(value, Tensor):
                columns.append(torch.full_like(batch, float(value)))
            elif len(value) == 1:
                columns.append(value[0].expand_as(batch))
            else:
                columns.append(torch.lerp(value[0], value[1], weight))
        return torch.stack(columns, dim=1)


def _rows(values: Sequence[Any], batch: Tensor) -> Tensor:
    """Stack numbers, [1, batch] and [2, batch] tensors to [2, values, batch]."""
    rows = [value if isinstance(value, Tensor) else batch.new_full((1, 1), float(value)) for value in values]
    return torch.stack([row.expand(2, len(batch)) for row in rows], dim=1)


def _plain(value: Any) -> int | float | bool:
    """A Python number: torch does not take numpy's."""
    return value.item() if hasattr(value, "item") else value


_PENALTIES = (Op.EXCESS, Op.DISTANCE, Op.COINCIDENCE, Op.INDIVISIBILITY, Op.EITHER)


def _relax(node: Node, args: Sequence[Any], like: Tensor) -> Tensor:
    """Compute one node; tensors are [1, batch] where sharp and blurred agree, [2, batch] elsewhere."""
    match node.op:
        case Op.ADD:
            return args[0] + args[1]
        case Op.MULTIPLY:
            return args[0] * args[1]
        case Op.DIVIDE:
            return args[0] / args[1]
        case Op.POWER:
            return args[0] ** args[1]
        case Op.LOG:
            return torch.log(args[0])
        case Op.NOT:
            return 1.0 - args[0]
        case Op.AND:
            return args[0] * args[1]
        case Op.OR:
            return args[0] + args[1] - args[0] * args[1]
        case Op.SELECT:
            condition, yes, no = args
            return _select(condition, yes, no, like)
        case _:
            a, b = (arg if isinstance(arg, Tensor) else like.new_full((1, 1), float(arg)) for arg in args)
            return _PENALTY[node.op](a, b)


def _select(condition: Any, yes: Any, no: Any, like: Tensor) -> Tensor:
    if not isinstance(condition, Tensor):
        chosen = yes if condition else no
        return chosen if isinstance(chosen, Tensor) else like.new_full((1, 1), float(chosen))
    if not isinstance(no, Tensor) and no == 0:
        return condition * yes
    if isinstance(yes, Tensor) and isinstance(no, Tensor):
        return torch.lerp(no, yes, condition)
    return no + condition * (yes - no)


def _excess(a: Tensor, b: Tensor) -> Tensor:
    return torch.log1p(torch.relu(b + 1.0 - a) ** 2)


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return torch.log1p((a - b) ** 2)


def _coincidence(a: Tensor, b: Tensor) -> Tensor:
    return torch.log1p(torch.relu(1.0 - (a - b) ** 2) ** 2)


def _indivisibility(n: Tensor, k: Tensor) -> Tensor:
    # The only multiple of 0 is 0.
    is_zero = k < _ZERO_SIZE
    size = torch.where(is_zero, 1.0, k)
    ratio = n / size
    # The whole part is subtracted so that multiples give exactly zero.
    sine = torch.sin(math.pi * (ratio - torch.round(ratio.detach())))
    return torch.log1p(torch.where(is_zero, n, size / math.pi * sine) ** 2)


def _either(a: Tensor, b: Tensor) -> Tensor:
    return a * b / (a + b + _EITHER)


_PENALTY = {
    Op.EXCESS: _excess,
    Op.DISTANCE: _distance,
    Op.COINCIDENCE: _coincidence,
    Op.INDIVISIBILITY: _indivisibility,
    Op.EITHER: _either,
}
