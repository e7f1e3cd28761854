"""Tilings of one dimension in closed form, cut-off tiles included.

A dimension of extent E split by tiles T1, T2, ... falls into pieces: so many tiles of the whole size, and for every
way an enclosing tile may itself be cut off, so many tiles of that remainder. After k levels there are k + 1 kinds
of pieces, and the sum of any f(size) over all tiles is the sum of count * f(size) over the kinds. Nothing assumes
that tiles divide each other or are smaller than what they tile. (Felix, section 3.3, has exact splits only.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

Size = Any  # a sympy Expr; sympy's annotations do not know that arithmetic on Expr gives Expr


@dataclass(frozen=True)
class Piece:
    """`count` tiles of `size`; the count is 0 when the size is."""

    count: Size
    size: Size


def choose(*branches: tuple[Size, Any]) -> Size:
    """Return the first value whose condition holds; the last condition must be True."""
    open_branches: list[tuple[Size, Any]] = []
    for value, condition in branches:
        if condition == sympy.false:
            continue
        open_branches.append((value, condition))
        if condition == sympy.true:
            break
    if len(open_branches) == 1:
        return open_branches[0][0]
    # Unevaluated: sympy's own canonical form of a Piecewise costs more than deriving all features.
    return sympy.Piecewise(*open_branches, evaluate=False)


def pieces(extent: Size, tiles: Sequence[Size]) -> tuple[Piece, ...]:
    """Split `extent` by each tile in turn, outermost first."""
    whole = Piece(sympy.Integer(1), extent)
    cut: list[Piece] = []
    for tile in tiles:
        parents = [whole, *cut]
        count = sympy.Add(*(parent.count * sympy.floor(parent.size / tile) for parent in parents))
        whole = Piece(count, tile)
        remainders = ((parent.count, sympy.Mod(parent.size, tile)) for parent in parents)
        cut = [Piece(choose((count, size > 0), (sympy.Integer(0), True)), size) for count, size in remainders]
    return (whole, *(piece for piece in cut if piece.count != 0))


def smallest(*sizes: Size) -> Size:
    """Their minimum; for nested tiles the size of the first one, which is a largest one."""
    parts: dict[Size, None] = dict.fromkeys(
        part for size in sizes for part in (size.args if isinstance(size, sympy.Min) else (size,))
    )
    constants: list[Size] = [part for part in parts if part.is_Integer]
    if 1 in constants:
        return sympy.Integer(1)
    # Unevaluated: sympy compares all pairs otherwise.
    bounds = [*(part for part in parts if not part.is_Integer), *([min(constants)] if constants else [])]
    return sympy.Min(*bounds, evaluate=False) if len(bounds) > 1 else bounds[0]


def count(extent: Size, tiles: Sequence[Size]) -> Size:
    """Number of tiles: every enclosing piece holds ceil(size / tile) of the innermost ones.

    The same as adding up the counts of `pieces`; the ceiling is the smoother way to say it.
    """
    if not tiles:
        return sympy.Integer(1)
    *outer, tile = tiles
    return sympy.Add(*(piece.count * sympy.ceiling(piece.size / tile) for piece in pieces(extent, outer)))


def total(tilings: Sequence[Iterable[Piece]], f: Callable[..., Size]) -> Size:
    """Sum of f(size of each dimension) over all tiles of several dimensions tiled independently."""
    terms: list[Size] = []
    for combination in itertools.product(*tilings):
        value = f(*(piece.size for piece in combination))
        terms.append(sympy.Mul(*(piece.count for piece in combination), value))
    return sympy.Add(*terms)
