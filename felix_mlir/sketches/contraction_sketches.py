"""Sketches of contractions: as one plain matrix product, packed into tiles, padded to them, or summed in parts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from felix_mlir.sketches.contraction import Contraction
from felix_mlir.sketches.products import Product, Tile, matmul, products, register_tile
from felix_mlir.sketches.sketch import Sketch
from felix_mlir.sketches.writer import Value, Writer

# Fewer elements of the output than this leave cores idle; fewer terms are not worth a second sum.
_FEW_ELEMENTS = 4096
_MANY_TERMS = 1024
_MOST_PARTS = 64
# The share of a padded output that may be zeros, as one part in so many.
_LEAST_USE = 8


def contraction_sketches(contraction: Contraction, vector_bytes: int) -> Iterator[Sketch]:
    """Yield the ways to compute a contraction on a target with vector registers of `vector_bytes`."""
    m, n, _ = contraction.matrix_shape
    for suffix, product in products(vector_bytes).items():
        # A product of two vectors has nothing to pack.
        if (m > 1 or n > 1) if suffix else not contraction.is_plain:
            yield _as_product(contraction, suffix.removeprefix("-") or "matmul", product)
    yield from _padded(contraction, vector_bytes)
    yield from _split_reduction(contraction)


def _as_product(contraction: Contraction, name: str, product: Product) -> Sketch:
    """Collapse the loops of each role and write one matrix product."""
    writer = Writer(contraction.root.parameters)
    return _finished(contraction, name, writer, product(writer, *_matrices(contraction, writer)))


def _matrices(contraction: Contraction, writer: Writer) -> tuple[Value, Value, Value]:
    """Return the inputs as [batch, M, K] and [batch, K, N] and what is added to as [batch, M, N]."""
    batch, m, n, k = contraction.batch, contraction.m, contraction.n, contraction.k
    batches = (contraction.extent(batch),) if batch else ()
    rows, columns, depth = contraction.matrix_shape
    return (
        writer.reshape(contraction.operand_as(writer, contraction.lhs, (*batch, *m, *k)), (*batches, rows, depth)),
        writer.reshape(contraction.operand_as(writer, contraction.rhs, (*batch, *k, *n)), (*batches, depth, columns)),
        writer.reshape(contraction.init_as(writer, (*batch, *m, *n)), (*batches, rows, columns)),
    )


def _finished(contraction: Contraction, name: str, writer: Writer, product: Value) -> Sketch:
    """Return the sketch whose product is [batch, M, N]."""
    loops = (*contraction.batch, *contraction.m, *contraction.n)
    result = writer.reshape(product, contraction.sizes(loops))
    return Sketch(name, writer, contraction.output_from(writer, result, loops))


def _padded(contraction: Contraction, vector_bytes: int) -> Iterator[Sketch]:
    """Rows and columns filled up with zeros to whole tiles, as far as few are wasted."""
    m, n, _ = contraction.matrix_shape
    types = [contraction.root.tensors[operand].element_type for operand in (contraction.lhs, contraction.rhs, 2)]
    more = _padding(m, n, register_tile(vector_bytes, (types[0], types[1], types[2]), m))
    if more is None:
        return
    writer = Writer(contraction.root.parameters)
    lhs, rhs, init = _matrices(contraction, writer)
    leading = [0] * (len(init.shape) - 2)
    none = [*leading, 0, 0]
    product = matmul(
        writer, writer.pad(lhs, none, [*leading, more[0], 0]), writer.pad(rhs, none, [*leading, 0, more[1]]),
        writer.pad(init, none, [*leading, *more]),
    )  # fmt: skip
    yield _finished(contraction, "padded", writer, writer.slice(product, none, init.shape, [1] * len(none)))


def _padding(m: int, n: int, tile: Tile) -> tuple[int, int] | None:
    """Return how many rows and columns to add: as many of both as whole tiles take, or of one if that wastes much."""
    rows, columns = -m % tile.rows, -n % tile.columns
    for more in ((rows, columns), (0, columns), (rows, 0)):
        padded = (m + more[0]) * (n + more[1])
        if padded > m * n and (padded - m * n) * _LEAST_USE <= padded:
            return more
    return None


def _split_reduction(contraction: Contraction) -> Iterator[Sketch]:
    """Parts of the longest reduced loop summed side by side, and then the parts."""
    root = contraction.root
    elements, terms = math.prod(root.output.shape), contraction.extent(contraction.k)
    loop = max(contraction.k, key=lambda loop: root.extents[loop], default=None)
    if elements >= _FEW_ELEMENTS or terms < _MANY_TERMS or loop is None:
        return
    extent = root.extents[loop]
    parts = max(number for number in range(1, _MOST_PARTS + 1) if extent % number == 0)
    if parts == 1:
        return
    writer = Writer(root.parameters)
    # The part is loop `first`, behind those of the op; no tensor is transposed, only the loop's dimension split.
    first = len(root.extents)
    values, maps = [], []
    for operand in range(2):
        loops = contraction.loops_in_order(operand)
        wanted = [part for each in loops for part in ((first, loop) if each == loop else (each,))]
        shape = [{first: parts, loop: extent // parts}.get(each) or root.extents[each] for each in wanted]
        values.append(writer.reshape(writer.parameters[operand], shape))
        maps.append(", ".join(f"d{each}" for each in wanted))
    out = contraction.output_loops()
    maps.append(", ".join(f"d{each}" for each in (first, *out)))
    partial = writer.zeros(root.output.of_shape((parts, *root.output.shape)))
    sums = writer.generic(maps, [*root.iterator_types, "parallel"], values, partial, root.body)
    yield Sketch("split-reduction", writer, writer.add_up(sums, contraction.init_as(writer, out)))
