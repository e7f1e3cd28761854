"""Winograd's minimal filtering, F(2x2, 3x3): 16 products for four outputs of a 3x3 window in place of 36.

The transforms are those of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), section 4.1:
of tiles d of 4x4 inputs and filters g, outputs are A^T [(G g G^T) * (B^T d B)] A. Sums over channels are matrix
products, one for each of the 16 elements of a transformed tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from felix_mlir.sketches.convolution import Convolution
from felix_mlir.sketches.convolution_sketches import layout_of
from felix_mlir.sketches.products import Product, multiplied_and_added
from felix_mlir.sketches.sketch import Sketch
from felix_mlir.sketches.writer import Tensor, Value, Writer

_INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_FILTER = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))
# Outputs of a tile and of its window, per dimension.
_STEP, _WINDOW = len(_OUTPUT), len(_FILTER[0])
_TILE = _STEP + _WINDOW - 1


def winograd_sketches(conv: Convolution, products: Mapping[str, Product]) -> Iterator[Sketch]:
    """Yield the sketch with each of `products` for a 3x3 convolution of stride 1 in f32; else nothing.

    It is not exact: elements of a tile are subtracted, so errors are relative to the largest of them.
    """
    if (
        not conv.is_pooling
        and not conv.groups
        and conv.root.stuffing is None
        and conv.sizes(conv.kernel) == (_WINDOW, _WINDOW)
        and all((window.stride, window.dilation) == (1, 1) for window in conv.windows)
        and {tensor.element_type for tensor in conv.root.tensors} == {"f32"}
    ):
        for suffix, product in products.items():
            yield _winograd(conv, f"winograd{suffix}", product)


def _winograd(conv: Convolution, name: str, product: Product) -> Sketch:
    writer = Writer(conv.root.parameters)
    loops = conv.channels_last_loops
    batch, ins, outs = (conv.extent(part) for part in (conv.batch, conv.channels_in, conv.channels_out))
    spatial = conv.sizes(conv.spatial)
    tiles = [-(-size // _STEP) for size in spatial]
    x = conv.input_channels_last(writer, writer.parameters[0])
    x = _cut(writer, writer.reshape(x, (batch, *x.shape[len(conv.batch) :][:2], ins)),
             [count * _STEP + _WINDOW - 1 for count in tiles])  # fmt: skip
    w = conv.filter_as(writer, (*conv.kernel, *conv.channels_in, *conv.channels_out))
    w = writer.reshape(w, (_WINDOW, _WINDOW, ins, outs))

    # Input tiles as [row, column, batch, tiles, channels in], filters as [row, column, channels in, channels out].
    rows = _transform(writer, _INPUT, x, f"b, t * {_STEP} + k, w, c", "r, b, t, w, c",
                      (_TILE, batch, tiles[0], x.shape[2], ins))  # fmt: skip
    inputs = _transform(writer, _INPUT, rows, f"q, b, t, u * {_STEP} + k, c", "q, r, b, t, u, c",
                        (_TILE, _TILE, batch, *tiles, ins))  # fmt: skip
    rows = _transform(writer, _FILTER, w, "k, l, c, f", "r, l, c, f", (_TILE, _WINDOW, ins, outs))
    filters = _transform(writer, _FILTER, rows, "q, k, c, f", "q, r, c, f", (_TILE, _TILE, ins, outs))

    points, elements = batch * math.prod(tiles), _TILE * _TILE
    sums = product(
        writer, writer.reshape(inputs, (elements, points, ins)), writer.reshape(filters, (elements, ins, outs)),
        writer.zeros(x.type.of_shape((elements, points, outs))),
    )  # fmt: skip

    # To [batch, tiles, outputs of a tile, tiles, outputs of a tile, channels out].
    sums = writer.reshape(sums, (_TILE, _TILE, batch, *tiles, outs))
    rows = _transform(writer, _OUTPUT, sums, "k, q, b, t, u, f", "r, q, b, t, u, f",
                      (_STEP, _TILE, batch, *tiles, outs))  # fmt: skip
    result = _transform(writer, _OUTPUT, rows, "p, k, b, t, u, f", "b, t, p, u, r, f",
                        (batch, tiles[0], _STEP, tiles[1], _STEP, outs))  # fmt: skip
    result = writer.reshape(result, (batch, *(count * _STEP for count in tiles), outs))
    result = conv.output_from(writer, writer.reshape(_cut(writer, result, spatial), conv.sizes(loops)), loops)
    if not conv.root.adds_to_zero:
        result = writer.add(result, writer.parameters[-1])
    return Sketch(name, writer, result, layout_of(conv), is_exact=False)


def _cut(writer: Writer, value: Value, sizes: Sequence[int]) -> Value:
    """Bring the two spatial dimensions of [batch, spatial, channels] to `sizes`: with zeros behind, or with less."""
    more = [max(0, size - have) for size, have in zip(sizes, value.shape[1:3], strict=True)]
    value = writer.pad(value, [0] * 4, [0, *more, 0])
    return writer.slice(value, [0] * 4, (value.shape[0], *sizes, value.shape[3]), [1] * 4)


def _transform(
    writer: Writer, matrix: Sequence[Sequence[float]], value: Value, reads: str, writes: str, shape: Sequence[int]
) -> Value:
    """Multiply a matrix to one dimension of a tensor.

    `reads` and `writes` are the indices of the tensor and of the result of `shape`, in letters: `k` is the reduced one,
    `r` the row of the matrix.
    """
    rows = ", ".join(f"[{', '.join(f'{number:.1f}' for number in row)}]" for row in matrix)
    type_ = Tensor((len(matrix), len(matrix[0])), value.type.element_type)
    constant = writer.op(f"arith.constant dense<[{rows}]> : {type_}", type_)
    letters = [*writes.split(", "), "k"]
    maps = [
        "".join(f"d{letters.index(sign)}" if sign in letters else sign for sign in text)
        for text in ("r, k", reads, writes)
    ]
    kinds = ["parallel"] * len(shape) + ["reduction"]
    element = type_.element_type
    body = multiplied_and_added((element, element, element))
    return writer.generic(maps, kinds, [constant, value], writer.zeros(value.type.of_shape(shape)), body)
