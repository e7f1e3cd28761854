"""Schedule templates as data: knobs, constraints and where each knob's value goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from felix_mlir.schedule.configuration import Configuration, Level, TileLevel
from felix_mlir.schedule.dispatch import Dispatch

KnobValues = Mapping[str, int]
Size = int | str | sympy.Expr  # a constant, the name of the knob that gives the size, or an expression of knobs

OpTileSizes = Mapping[Any, tuple[Size, ...]]  # by level (of one backend), one size per loop of an op


@dataclass(frozen=True)
class Knob:
    """A tile size left open: of dispatch-wide dimension `dim` (trip count `extent`) at `level`.

    `options` are the sizes it may take, ascending.
    """

    name: str
    dim: int
    level: Level
    extent: int
    options: tuple[int, ...]

    @property
    def symbol(self) -> sympy.Symbol:
        return knob_symbol(self.name)


def knob_symbol(name: str) -> sympy.Symbol:
    """The sympy symbol that stands for a knob in constraints (and, later, in features)."""
    return sympy.Symbol(name, integer=True, positive=True)


@dataclass(frozen=True)
class Constraint:
    """A condition over knob symbols that every legal candidate meets; `message` says why, for a reader."""

    message: str
    condition: Any  # a sympy Boolean

    @cached_property
    def knobs(self) -> tuple[str, ...]:
        """Names of the knobs it speaks of, sorted."""
        return tuple(sorted(symbol.name for symbol in self.condition.free_symbols))

    def holds(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Evaluate it exactly; `columns` has an array of n sizes per knob. Returns n booleans."""
        shape = next(iter(columns.values())).shape
        # Where another constraint is broken, this one may divide by zero: it does not matter what it says.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.broadcast_to(self._evaluate(*(columns[name] for name in self.knobs)), shape)

    @cached_property
    def _evaluate(self) -> Callable[..., Any]:
        return sympy.lambdify([knob_symbol(name) for name in self.knobs], self.condition, "numpy", cse=True)


@dataclass(frozen=True)
class ScheduleTemplate:
    """All candidates of one pipeline for one dispatch.

    `tiles` holds, per compute op in program order, the size of each loop at each level: constants and knob names.
    """

    name: str
    dispatch: Dispatch
    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...]
    tiles: tuple[OpTileSizes, ...]

    def configuration(self, values: KnobValues) -> Configuration:
        """Return the configuration that `values` (one size per knob) stands for."""
        ops = self.tile_sizes(values)
        idle = _idle_levels(ops[self.dispatch.root_index], self.dispatch.root.extents)
        return Configuration(
            self.name,
            tuple({level: sizes for level, sizes in op.items() if level not in idle} for op in ops),
        )

    def tile_sizes(self, values: KnobValues) -> tuple[dict[Level, tuple[int, ...]], ...]:
        """Return the size of each loop of each compute op at each level, for a size per knob."""
        return tuple(
            {level: tuple(_value(size, values) for size in sizes) for level, sizes in tiles.items()}
            for tiles in self.tiles
        )

    def values_of(self, configuration: Configuration) -> dict[str, int] | None:
        """Return the knob values that give `configuration`, or None when it lies outside the template's options."""
        values = self.sizes_of(configuration)
        if values is None or any(values[knob.name] not in knob.options for knob in self.knobs):
            return None
        return values

    def sizes_of(self, configuration: Configuration) -> dict[str, int] | None:
        """Return a size per knob as `configuration` has it, whatever the options; None for other ops or pipelines.

        A level the configuration leaves out reads as one that does not split its enclosing level.
        """
        if configuration.pipeline != self.name or len(configuration.ops) != len(self.tiles):
            return None
        values: dict[str, int] = {}
        # The root op first: it alone has every level of the dimensions it shares with the others.
        order = sorted(range(len(self.tiles)), key=lambda index: index != self.dispatch.root_index)
        for index in order:
            op, tiles, given = self.dispatch.ops[index], self.tiles[index], configuration.ops[index]
            for level, sizes in tiles.items():
                for loop, size in enumerate(sizes):
                    if isinstance(size, str) and size not in values:
                        values[size] = _size_at(given, level, loop, op.extents[loop])
        return {knob.name: values[knob.name] for knob in self.knobs}

    def violations(self, values: KnobValues) -> list[str]:
        """Return the message of every constraint `values` breaks; an empty list means legal."""
        outside = [
            f"{knob.name} = {values[knob.name]} is not one of its {len(knob.options)} sizes"
            for knob in self.knobs
            if values[knob.name] not in knob.options
        ]
        holds = self.satisfied(np.array([[values[knob.name] for knob in self.knobs]]))[0]
        return outside + [c.message for c, ok in zip(self.constraints, holds, strict=True) if not ok]

    def satisfied(self, points: np.ndarray) -> np.ndarray:
        """Evaluate every constraint on `points` (n × knobs, integers); returns n × constraints booleans."""
        columns = {knob.name: points[:, i] for i, knob in enumerate(self.knobs)}
        results = [constraint.holds(columns) for constraint in self.constraints]
        return np.stack(results, axis=1) if results else np.ones((len(points), 0), dtype=bool)


def symbolic(size: Size) -> sympy.Expr:
    """Return a size as an expression of knob symbols."""
    return knob_symbol(size) if isinstance(size, str) else sympy.sympify(size)


# sympy's own annotations do not say that relations are Boolean.
def any_of(*conditions: Any) -> Any:
    return sympy.Or(*conditions)


def all_of(*conditions: Any) -> Any:
    return sympy.And(*conditions)


def evaluated(expression: sympy.Expr, values: KnobValues) -> int:
    """Return an expression of knob symbols at knob values, which make it an integer."""
    symbols = {knob_symbol(name): sympy.Integer(value) for name, value in values.items()}
    value: Any = expression.xreplace(symbols)
    return int(value)


def _value(size: Size, values: KnobValues) -> int:
    if isinstance(size, sympy.Expr):
        return evaluated(size, values)
    return values[size] if isinstance(size, str) else size


def _idle_levels(root: Mapping[Level, tuple[int, ...]], extents: tuple[int, ...]) -> set[Level]:
    """Cache levels whose loops would all run once: writing them out only costs the compiler time."""
    idle: set[Level] = set()
    cache_parallel = root.get(TileLevel.CACHE_PARALLEL, ())
    if all(c in (0, d) for c, d in zip(cache_parallel, root.get(TileLevel.DISTRIBUTION, ()), strict=False)):
        idle.add(TileLevel.CACHE_PARALLEL)
    cache_reduction = root.get(TileLevel.CACHE_REDUCTION, ())
    if all(c in (0, e) for c, e in zip(cache_reduction, extents, strict=False)):
        idle.add(TileLevel.CACHE_REDUCTION)
    return idle


def _size_at(given: Mapping[Any, tuple[int, ...]], level: Level, loop: int, extent: int) -> int:
    sizes = given.get(level, ())
    size = sizes[loop] if loop < len(sizes) else 0
    if size:
        return size
    # An untiled loop at this level runs over what the next outer level leaves of it.
    if level is TileLevel.CACHE_PARALLEL:
        return _size_at(given, TileLevel.DISTRIBUTION, loop, extent)
    return extent
