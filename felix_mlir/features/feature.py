"""What a feature is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Feature:
    """A quantity of a scheduled dispatch; `expr` is sympy's, over knobs, shapes and `machine.MACHINE`.

    `name` reads stage[/level][/operand]/quantity; `unit` is one of bytes, iterations, operations, tiles, lines,
    vectors, elements, workgroups, waves, or 1 for a ratio; of a GPU also threads, warps, registers, rounds and
    operations per byte.
    """

    name: str
    unit: str
    expr: Any
