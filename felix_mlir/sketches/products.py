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


def register_tile(vector_bytes: int, element_types: tuple[str, str, str]) -> Tile:
    """Return the tile of a product of two element types into a third: a vector wide, square from eight on.

    These are the shapes IREE's encodings have for x86-64
    (compiler/Codegen/ExternalInterfaces/CPUEncodingExternalModels.cpp). Two terms at once are what multiplies and adds
    pairs of narrow integers.
    """
    lhs, rhs, out = element_types
    lanes = max(1, vector_bytes // max(_MIN_ELEMENT_BYTES, element_bytes(out)))
    depth = 2 if out == "i32" and lhs == rhs and element_bytes(lhs) < _MIN_ELEMENT_BYTES else 1
    return Tile(max(_MIN_ROWS, lanes), lanes, depth)


def element_bytes(element_type: str) -> int:
    """Return the size of an element type as MLIR spells it, e.g. f32, bf16, i8; one without a width is an index."""
    width = re.search(r"\d+", element_type)
    return -(-int(width[0] if width else 64) // 8)


def packed(vector_bytes: int, writer: Writer, lhs: Value, rhs: Value, init: Value) -> Value:
    """Write a matrix product over tiles: both operands packed, multiplied tile by tile, the result unpacked."""
    batched = len(init.shape) == 3
    m, n = len(init.shape) - 2, len(init.shape) - 1
    tile = register_tile(vector_bytes, (lhs.type.element_type, rhs.type.element_type, init.type.element_type))
    # The side with few elements is made the rows, whose number in a tile can be small.
    if init.shape[n] < min(init.shape[m], tile.rows):
        sides = ((rhs, n, m), (lhs, m, n), (n, m))
    else:
        sides = ((lhs, m, n), (rhs, n, m), (m, n))
    rows = min(tile.rows, _power_of_two(init.shape[sides[2][0]]))
    a, b = (
        writer.pack(value, (outer, inner), (size, tile.depth))
        for (value, outer, inner), size in zip(sides[:2], (rows, tile.columns), strict=True)
    )
    tiles = writer.pack(init, sides[2], (rows, tile.columns))
    product = writer.named("batch_mmt4d" if batched else "mmt4d", [a, b], tiles)
    return writer.unpack(product, init.type, sides[2], (rows, tile.columns))


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not smaller."""
    return 1 << (number - 1).bit_length()
