"""Matrix products that sketches are written with: as one op, or over tiles that are packed first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from felix_mlir.sketches.writer import Value, Writer

# Writes lhs [batch, M, K] times rhs [batch, K, N], added to init [batch, M, N]; the batch dimension may be absent.
Product = Callable[[Writer, Value, Value, Value], Value]

# Registers of accumulators a tile has at least.
_MIN_ROWS = 8
# Elements narrower than this are widened in registers, so they count as wide.
_MIN_ELEMENT_BYTES = 4


def products(vector_bytes: int) -> Mapping[str, Product]:
    """Return the ways to write a matrix product, by what is added to a sketch's name.

    `vector_bytes` is the width of the target's vector registers.
    """
    return {"": matmul, "-packed": partial(packed, vector_bytes)}


def matmul(writer: Writer, lhs: Value, rhs: Value, init: Value) -> Value:
    """Write a matrix product as one op."""
    return writer.named("batch_matmul" if len(init.shape) == 3 else "matmul", [lhs, rhs], init)


@dataclass(frozen=True)
class Tile:
    """What is computed in registers at once: `rows` of one operand, `columns` of the other, `depth` terms."""

    rows: int
    columns: int
    depth: int


def register_tile(vector_bytes: int, element_types: tuple[str, str, str], rows: int) -> Tile:
    """Return the tile of a product of two element types into a third that has `rows` rows.

    It is a vector wide, which all but fills the registers with sums at the compiler's default sizes, and as high as
    wide from eight on, like those of IREE's encodings for x86-64
    (compiler/Codegen/ExternalInterfaces/CPUEncodingExternalModels.cpp), or down to half of that where fewer rows of
    zeros are then added. Two terms at once are what multiplies and adds pairs of narrow integers.
    """
    lhs, rhs, out = element_types
    lanes = max(1, vector_bytes // max(_MIN_ELEMENT_BYTES, element_bytes(out)))
    depth = 2 if out == "i32" and lhs == rhs and element_bytes(lhs) < _MIN_ELEMENT_BYTES else 1
    most = max(_MIN_ROWS, lanes)
    if rows <= most:
        return Tile(rows, lanes, depth)
    return Tile(min(range(most, most // 2, -1), key=lambda height: -rows % height), lanes, depth)


def element_bytes(element_type: str) -> int:
    """Return the size of an element type as MLIR spells it, e.g. f32, bf16, i8; one without a width is an index."""
    width = re.search(r"\d+", element_type)
    return -(-int(width[0] if width else 64) // 8)


def packed(vector_bytes: int, writer: Writer, lhs: Value, rhs: Value, init: Value) -> Value:
    """Write a matrix product over tiles: both operands packed, multiplied tile by tile, the result unpacked."""
    batched = len(init.shape) == 3
    m, n = len(init.shape) - 2, len(init.shape) - 1
    types = (lhs.type.element_type, rhs.type.element_type, init.type.element_type)
    # The side with few elements is made the rows, whose number in a tile can be small.
    if init.shape[n] < min(init.shape[m], _MIN_ROWS):
        sides = ((rhs, n, m), (lhs, m, n), (n, m))
    else:
        sides = ((lhs, m, n), (rhs, n, m), (m, n))
    tile = register_tile(vector_bytes, types, init.shape[sides[2][0]])
    depth = (tile.depth,) if tile.depth > 1 else ()
    a, b = (
        writer.pack(value, (outer, inner), (size, *depth))
        for (value, outer, inner), size in zip(sides[:2], (tile.rows, tile.columns), strict=True)
    )
    tiles = writer.pack(init, sides[2], (tile.rows, tile.columns))
    if depth:
        product = writer.named("batch_mmt4d" if batched else "mmt4d", [a, b], tiles)
    else:  # Of another shape than its own kernels' the compiler makes slow code for mmt4d.
        maps = ["d0, d4, d2", "d1, d4, d3", "d0, d1, d2, d3"]
        maps = [f"d5, {map_}" for map_ in maps] if batched else maps
        kinds = ["parallel"] * 4 + ["reduction"] + ["parallel"] * batched
        product = writer.generic(maps, kinds, [a, b], tiles, multiplied_and_added(types))
    return writer.unpack(product, init.type, sides[2], (tile.rows, tile.columns))


def multiplied_and_added(element_types: tuple[str, str, str]) -> str:
    """Return the body of a product of two element types, widened to the third that it is added to."""
    *inputs, out = element_types
    kind, widen = ("i", "extsi") if out.startswith("i") else ("f", "extf")
    lines = [f"    ^bb0(%a: {inputs[0]}, %b: {inputs[1]}, %to: {out}):"]
    factors: list[str] = []
    for name, type_ in zip(("%a", "%b"), inputs, strict=True):
        factors.append(name if type_ == out else f"{name}_wide")
        if type_ != out:
            lines.append(f"      {name}_wide = arith.{widen} {name} : {type_} to {out}")
    lines += [
        f"      %product = arith.mul{kind} {', '.join(factors)} : {out}",
        f"      %sum = arith.add{kind} %to, %product : {out}",
        f"      linalg.yield %sum : {out}",
    ]
    return "\n".join(lines)
