"""The tile sizes a template leaves open, by name: knobs, and expressions of knobs.

A script and a payload need one SSA value per size, whatever the size is made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import sympy

from felix_mlir.schedule.template import KnobValues, ScheduleTemplate, Size, evaluated, knob_symbol


def open_sizes(template: ScheduleTemplate) -> dict[str, sympy.Expr]:
    """Return what each open size is, by its name: that of the knob, or `size_0`, `size_1`, ... for an expression."""
    sizes: dict[str, sympy.Expr] = {knob.name: knob.symbol for knob in template.knobs}
    for tiles in template.tiles:
        for size in itertools.chain.from_iterable(tiles.values()):
            if isinstance(size, sympy.Expr) and size.free_symbols and _whole(size) not in sizes.values():
                sizes[f"size_{len(sizes) - len(template.knobs)}"] = _whole(size)
    return sizes


def _whole(size: Any) -> sympy.Expr:
    """A size as the integer that it is of any legal candidate: of a ratio of knobs, sympy does not know."""
    return sympy.ceiling(size)


def named(size: Size, sizes: Mapping[str, sympy.Expr]) -> int | str:
    """Return a size as a constant or the name of an open one."""
    if not isinstance(size, sympy.Expr):
        return size
    return next((name for name, expr in sizes.items() if expr == _whole(size)), None) or int(size)


def known_sizes(sizes: Mapping[str, sympy.Expr], values: KnobValues) -> dict[str, int]:
    """Return the open sizes that knobs of these values decide."""
    known = {knob_symbol(name) for name in values}
    return {name: evaluated(expr, values) for name, expr in sizes.items() if expr.free_symbols <= known}


def options_of(size: sympy.Expr, template: ScheduleTemplate) -> tuple[int, ...]:
    """Return all values a size can take, ascending."""
    knobs = [knob for knob in template.knobs if knob.symbol in size.free_symbols]
    choices = itertools.product(*(knob.options for knob in knobs))
    names = [knob.name for knob in knobs]
    return tuple(sorted({evaluated(size, dict(zip(names, choice, strict=True))) for choice in choices}))
