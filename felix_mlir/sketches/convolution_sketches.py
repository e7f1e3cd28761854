"""Sketches of convolutions and poolings: channels last, as matrix products, as sums of smaller ones, as phases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from felix_mlir.sketches.convolution import Convolution, Window
from felix_mlir.sketches.products import Product
from felix_mlir.sketches.sketch import Layout, Sketch
from felix_mlir.sketches.writer import Value, Writer

# How linalg spells the spatial dimensions of named ops, by their number.
_SPATIAL_LETTERS = {1: "w", 2: "hw", 3: "dhw"}
_POOLINGS = {"arith.addf": "sum", "arith.addi": "sum", "arith.maximumf": "max", "arith.maxsi": "max",
             "arith.minimumf": "min", "arith.minsi": "min"}  # fmt: skip

# As many views are read by one op at most, of a weight each: a window of 5 x 5 or 3 x 3 x 3.
_MOST_TAPS = 27

# Writes a convolution of [batch, spatial, groups, channels] operands over some windows.
_Write = Callable[[Writer, Convolution, Sequence[Window], Value, Value, Value], Value]


def convolution_sketches(conv: Convolution, products: Mapping[str, Product]) -> Iterator[Sketch]:
    """Yield the ways to compute a convolution or pooling; those of matrix products with each of `products`."""
    if conv.is_pooling or _is_depthwise(conv):
        products = {}
    if conv.root.stuffing is not None:
        gemms = {f"phases-gemm{suffix}": partial(channels_last_gemm, product) for suffix, product in products.items()}
        for name, write in {"phases": channels_last_op, **gemms}.items():
            sketch = _phases(conv, name, write)
            if sketch is not None:
                yield sketch
        return
    if not conv.is_channels_last:
        yield _channels_last(conv, "channels-last", channels_last_op)
    for suffix, product in products.items():
        yield _channels_last(conv, f"gemm{suffix}", partial(channels_last_gemm, product))
        if conv.extent(conv.batch) == 1 and not conv.is_channels_last:
            yield _gemm_channels_first(conv, f"gemm-channels-first{suffix}", product)
    if not conv.is_pooling and len(conv.windows) > 1 and conv.root.extents[conv.windows[0].kernel] > 1:
        yield _accumulated(conv)
    if conv.extent(conv.channels_in) == 1 and 1 < conv.extent(conv.kernel) <= _MOST_TAPS:
        yield _by_taps(conv, "taps", layout_of(conv))
        if not conv.is_channels_last:
            yield _by_taps(conv, "taps-channels-first", Layout.KEPT)


def layout_of(conv: Convolution) -> Layout:
    """Return the layout of sketches that compute on channels-last tensors."""
    return Layout.ANY if conv.is_channels_last else Layout.CHANNELS_LAST


def _is_depthwise(conv: Convolution) -> bool:
    return conv.extent((*conv.channels_in, *conv.channels_out)) == 1


def _filter_loops(conv: Convolution) -> tuple[int, ...]:
    return conv.kernel if conv.is_pooling else (*conv.kernel, *conv.groups, *conv.channels_in, *conv.channels_out)


def _channels_last(conv: Convolution, name: str, write: _Write) -> Sketch:
    writer = Writer(conv.root.parameters)
    x = writer.parameters[0]
    loops = conv.channels_last_loops
    result = write(
        writer, conv, conv.windows,
        conv.input_channels_last(writer, x), conv.filter_as(writer, _filter_loops(conv)),
        conv.init_as(writer, loops),
    )  # fmt: skip
    return Sketch(name, writer, conv.output_from(writer, result, loops), layout_of(conv))


def channels_last_op(
    writer: Writer, conv: Convolution, windows: Sequence[Window], x: Value, w: Value, init: Value
) -> Value:
    """Write a convolution of channels-last operands over `windows` as one op, by its name where linalg has one.

    `x` is [batch, spatial, groups, channels in], `w` [windows, groups, channels in, channels out], `init` and the
    result [batch, spatial, groups, channels out].
    """
    name = _name(conv, windows)
    if name is None or len(x.shape) != len(windows) + 2:
        return _generic(writer, conv, windows, x, w, init)
    strides, dilations = (
        f"dense<[{', '.join(map(str, numbers))}]> : tensor<{len(windows)}xi64>"
        for numbers in ([window.stride for window in windows], [window.dilation for window in windows])
    )
    return writer.named(name, [x, w], init, f" {{dilations = {dilations}, strides = {strides}}}")


def _name(conv: Convolution, windows: Sequence[Window]) -> str | None:
    letters = _SPATIAL_LETTERS.get(len(windows))
    channels = (len(conv.groups), len(conv.channels_in), len(conv.channels_out))
    if letters is None or len(conv.root.scalar_ops) != (1 if conv.is_pooling else 2):
        return None
    if conv.is_pooling:
        name = _POOLINGS.get(conv.root.combines_with)
        return f"pooling_n{letters}c_{name}" if name and channels == (1, 0, 0) else None
    forms = {
        (0, 1, 1): f"conv_{len(windows)}d_n{letters}c_{letters}cf",
        (1, 0, 0): f"depthwise_conv_{len(windows)}d_n{letters}c_{letters}c",
        (1, 0, 1): f"depthwise_conv_{len(windows)}d_n{letters}c_{letters}cm",
    }
    return forms.get(channels)


def _generic(writer: Writer, conv: Convolution, windows: Sequence[Window], x: Value, w: Value, init: Value) -> Value:
    channels = (len(conv.groups), len(conv.channels_out), len(conv.channels_in))
    batches = len(init.shape) - len(windows) - channels[0] - channels[1]
    counts = (batches, len(windows), *channels[:2], len(windows), channels[2])
    numbers = iter(range(sum(counts)))
    batch, spatial, groups, outs, kernel, ins = ([f"d{next(numbers)}" for _ in range(count)] for count in counts)
    reads = [f"{s} * {window.stride} + {k} * {window.dilation}"
             for s, k, window in zip(spatial, kernel, windows, strict=True)]  # fmt: skip
    reads_filter = kernel if conv.is_pooling else [*kernel, *groups, *ins, *outs]
    maps = [", ".join(m) for m in ([*batch, *reads, *groups, *ins], reads_filter, [*batch, *spatial, *groups, *outs])]
    kinds = ["parallel"] * sum(counts[:4]) + ["reduction"] * sum(counts[4:])
    return writer.generic(maps, kinds, [x, w], init, conv.root.body)


def channels_last_gemm(
    product: Product, writer: Writer, conv: Convolution, windows: Sequence[Window], x: Value, w: Value, init: Value
) -> Value:
    """Write a convolution of channels-last operands (see `channels_last_op`) as one matrix product a group."""
    outs = conv.extent(conv.channels_out)
    columns = _columns(writer, conv, windows, x, w.shape[: len(windows)], init)
    rows, reduced = columns.shape[-2:]
    at = len(windows)
    groups = range(at, at + len(conv.groups))
    filters = writer.transpose(w, [*groups, *range(at), *range(groups.stop, len(w.shape))])
    many = columns.shape[:-2]
    # To [groups, batch, spatial, channels out], and back.
    first = len(init.shape) - len(conv.groups) - len(conv.channels_out)
    order = [*range(first, first + len(conv.groups)), *range(first), *range(first + len(conv.groups), len(init.shape))]
    grouped = writer.transpose(init, order)
    flat = product(
        writer, columns, writer.reshape(filters, (*many, reduced, outs)),
        writer.reshape(grouped, (*many, rows, outs)),
    )  # fmt: skip
    result = writer.reshape(flat, grouped.shape)
    return writer.transpose(result, [order.index(dim) for dim in range(len(order))])


def _columns(
    writer: Writer, conv: Convolution, windows: Sequence[Window], x: Value, kernel: Sequence[int], init: Value
) -> Value:
    """Gather a channels-last input into [groups, batch and spatial, windows and channels in]."""
    channels = len(conv.groups) + len(conv.channels_in)
    batches = len(x.shape) - len(windows) - channels
    batch, rest = x.shape[:batches], x.shape[batches + len(windows) :]
    groups, ins = rest[: len(conv.groups)], rest[len(conv.groups) :]
    spatial = init.shape[batches : batches + len(windows)]
    rows, reduced = math.prod((*batch, *spatial)), math.prod((*kernel, *ins))
    final = (math.prod(groups), rows, reduced) if conv.groups else (rows, reduced)
    if math.prod(kernel) == 1:
        strides = [1] * batches + [window.stride for window in windows] + [1] * channels
        sliced = writer.slice(x, [0] * len(x.shape), (*batch, *spatial, *groups, *ins), strides)
        at = batches + len(windows)
        order = [*range(at, at + len(groups)), *range(at), *range(at + len(groups), len(x.shape))]
        return writer.reshape(writer.transpose(sliced, order), final)
    numbers = iter(range(len(groups) + batches + 2 * len(windows) + len(ins)))
    g, b, s, k, c = ([f"d{next(numbers)}" for _ in part] for part in (groups, batch, spatial, kernel, ins))
    reads = [f"{d} * {window.stride} + {e} * {window.dilation}" for d, e, window in zip(s, k, windows, strict=True)]
    shape = (*groups, *batch, *spatial, *kernel, *ins)
    return writer.reshape(writer.copy(x, ", ".join([*b, *reads, *g, *c]), x.type.of_shape(shape)), final)


def _gemm_channels_first(conv: Convolution, name: str, product: Product) -> Sketch:
    """Filter times columns: the output has its channels first, as the op does, and nothing is transposed."""
    writer = Writer(conv.root.parameters)
    x = writer.parameters[0]
    rows = (*conv.batch, *conv.spatial)
    loops = (*conv.groups, *conv.channels_out, *rows)
    many = (conv.extent(conv.groups),) if conv.groups else ()
    outs, reduced = conv.extent(conv.channels_out), conv.extent((*conv.kernel, *conv.channels_in))
    filters = conv.filter_as(writer, (*conv.groups, *conv.channels_out, *conv.kernel, *conv.channels_in))
    columns = (*conv.groups, *conv.kernel, *conv.channels_in, *rows)
    flat = product(
        writer, writer.reshape(filters, (*many, outs, reduced)),
        writer.reshape(_gathered(writer, conv, x, columns), (*many, reduced, conv.extent(rows))),
        writer.reshape(conv.init_as(writer, loops), (*many, outs, conv.extent(rows))),
    )  # fmt: skip
    result = writer.reshape(flat, conv.sizes(loops))
    return Sketch(name, writer, conv.output_from(writer, result, loops), Layout.KEPT)


def _gathered(writer: Writer, conv: Convolution, x: Value, loops: Sequence[int]) -> Value:
    """Return what the op reads of its input at each point of `loops`."""
    indices = conv.root.indices[0]
    if conv.extent(conv.kernel) == 1:
        strides = {window.spatial: window.stride for window in conv.windows}
        kept = conv.input_loops
        sliced = writer.slice(x, [0] * len(kept), conv.sizes(kept), [strides.get(loop, 1) for loop in kept])
        wanted = [loop for loop in loops if loop in kept]
        return writer.reshape(writer.transpose(sliced, [kept.index(loop) for loop in wanted]), conv.sizes(loops))
    names = {loop: f"d{position}" for position, loop in enumerate(loops)}
    reads = [" + ".join(f"{names[loop]} * {factor}" for loop, factor in index.terms) for index in indices]
    return writer.copy(x, ", ".join(reads), x.type.of_shape(conv.sizes(loops)))


def _accumulated(conv: Convolution) -> Sketch:
    """The outermost window dimension as a sum of convolutions of one rank less, over slices of the input."""
    writer = Writer(conv.root.parameters)
    outer, inner = conv.windows[0], conv.windows[1:]
    loops = conv.channels_last_loops
    x = conv.input_channels_last(writer, writer.parameters[0])
    w = conv.filter_as(writer, _filter_loops(conv))
    init = conv.init_as(writer, loops)
    at, depth = len(conv.batch), conv.root.extents[outer.spatial]
    batch = conv.extent(conv.batch) * depth
    total = writer.reshape(init, (batch, *init.shape[at + 1 :]))
    for k in range(conv.root.extents[outer.kernel]):
        offsets, sizes, strides = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        offsets[at], sizes[at], strides[at] = k * outer.dilation, depth, outer.stride
        part = writer.reshape(writer.slice(x, offsets, sizes, strides), (batch, *x.shape[at + 1 :]))
        taps = writer.slice(w, [k, *[0] * (len(w.shape) - 1)], [1, *w.shape[1:]], [1] * len(w.shape))
        total = channels_last_op(writer, conv, inner, part, writer.reshape(taps, w.shape[1:]), total)
    result = writer.reshape(total, conv.sizes(loops))
    return Sketch("accumulated", writer, conv.output_from(writer, result, loops), layout_of(conv))


def _by_taps(conv: Convolution, name: str, layout: Layout) -> Sketch:
    """Window by window element: one elementwise op over as many shifted views of the input."""
    writer = Writer(conv.root.parameters)
    x = writer.parameters[0]
    if layout is Layout.KEPT:
        read, loops = conv.input_loops, conv.output_loops()
    else:
        read, loops = (*conv.batch, *conv.spatial, *conv.groups, *conv.channels_in), conv.channels_last_loops
        x = conv.input_channels_last(writer, x)
    channels = (*conv.groups, *conv.channels_in, *conv.channels_out)
    w = conv.filter_as(writer, _filter_loops(conv))
    window_of = {window.spatial: window for window in conv.windows}
    strides = [window_of[loop].stride if loop in window_of else 1 for loop in read]
    rows: list[list[Value]] = []
    for tap in itertools.product(*map(range, conv.sizes(conv.kernel))):
        at = {window.spatial: k * window.dilation for window, k in zip(conv.windows, tap, strict=True)}
        row = [writer.slice(x, [at.get(loop, 0) for loop in read], conv.sizes(read), strides)]
        if not conv.is_pooling:
            taps = writer.slice(w, [*tap, *[0] * len(channels)], [*[1] * len(tap), *conv.sizes(channels)],
                                [1] * len(w.shape))  # fmt: skip
            row.append(writer.reshape(taps, conv.sizes(channels)))
        rows.append(row)
    # Channels that are summed over are one: the output has no loop for them.
    places = {loop: f"d{position}" for position, loop in enumerate(loops)}
    maps = [", ".join(places.get(loop, "0") for loop in operand) for operand in (read, channels)]
    result = writer.folded(maps[: len(rows[0])], rows, conv.init_as(writer, loops), conv.root.body)
    return Sketch(name, writer, conv.output_from(writer, result, loops), layout)


@dataclass(frozen=True)
class _Taps:
    """The filter elements that meet elements of a spread-out input at one residue of the output, in one dimension.

    They are `count` from `first` on, every `step`th; the output at `step of the output` * q + residue reads the input
    at q + `shift` + i * `dilation` with the i-th of them.
    """

    first: int
    count: int
    step: int
    shift: int
    dilation: int


def _taps(residue: int, kernel: int, dilation: int, stuffing: int, start: int) -> _Taps:
    met = [k for k in range(kernel) if (residue + k * dilation - start) % stuffing == 0]
    if not met:
        return _Taps(0, 0, 1, 0, 1)
    shifts = [(residue + k * dilation - start) // stuffing for k in met]
    if len(met) == 1:
        return _Taps(met[0], 1, 1, shifts[0], 1)
    return _Taps(met[0], len(met), met[1] - met[0], shifts[0], shifts[1] - shifts[0])


def _phases(conv: Convolution, name: str, write: _Write) -> Sketch | None:
    """A convolution over an input spread out with zeros, per residue of the output, without the zeros."""
    spread = _spread(conv)
    # Zeros that are left out change nothing but a sum.
    if spread is None or not (conv.root.multiplies_and_adds or "add" in conv.root.combines_with):
        return None
    starts, steps = spread
    writer = Writer(conv.root.parameters)
    x = conv.input_channels_last(writer, writer.parameters[0])
    w = conv.filter_as(writer, _filter_loops(conv))
    head, spatial = conv.sizes(conv.batch), conv.sizes(conv.spatial)
    tail = conv.sizes((*conv.groups, *conv.channels_out))
    counts = [-(-size // step) for size, step in zip(spatial, steps, strict=True)]
    parts: list[tuple[tuple[int, ...], Value]] = []
    for residues in itertools.product(*map(range, steps)):
        taps = [_taps(*numbers) for numbers in zip(
            residues, conv.sizes(conv.kernel), [window.dilation for window in conv.windows], steps, starts, strict=True
        )]  # fmt: skip
        init = writer.zeros(conv.root.output.of_shape((*head, *counts, *tail)))
        has_taps = all(tap.count for tap in taps)
        parts.append((residues, _phase(writer, conv, write, x, w, init, taps) if has_taps else init))
    # Interleaved as [batch, size / step, step, ..., channels], which collapses to the output and what is cut off.
    pairs = [n for pair in zip(counts, steps, strict=True) for n in pair]
    total = writer.empty(conv.root.output.of_shape((*head, *pairs, *tail)))
    for residues, part in parts:
        unit = writer.reshape(part, (*head, *(n for count in counts for n in (count, 1)), *tail))
        offsets = [*[0] * len(head), *(n for residue in residues for n in (0, residue)), *[0] * len(tail)]
        total = writer.insert(unit, total, offsets)
    total = writer.reshape(total, (*head, *(n * step for n, step in zip(counts, steps, strict=True)), *tail))
    loops = conv.channels_last_loops
    ones = [1] * len(loops)
    cut = writer.slice(total, [0] * len(loops), conv.sizes(loops), ones)
    result = conv.output_from(writer, cut, loops)
    result = result if conv.root.adds_to_zero else writer.add(result, writer.parameters[-1])
    return Sketch(name, writer, result, layout_of(conv))


def _spread(conv: Convolution) -> tuple[list[int], list[int]] | None:
    """Return where the elements of the spread-out input begin and how far apart they are, per window."""
    stuffing = conv.root.stuffing
    if stuffing is None or any(window.stride != 1 for window in conv.windows):
        return None
    window_of = {window.spatial: position for position, window in enumerate(conv.windows)}
    starts, steps = [0] * len(conv.windows), [1] * len(conv.windows)
    for index, offset, stride in zip(conv.root.indices[0], stuffing.offsets, stuffing.strides, strict=True):
        position = window_of.get(index.terms[0][0])
        if position is not None:
            starts[position], steps[position] = offset, stride
        elif (offset, stride) != (0, 1):
            return None
    return starts, steps


def _phase(
    writer: Writer, conv: Convolution, write: _Write, x: Value, w: Value, init: Value, taps: Sequence[_Taps]
) -> Value:
    """Write the convolution that gives the outputs of one residue."""
    at = len(conv.batch)
    low, high, offsets, sizes = [0] * len(x.shape), [0] * len(x.shape), [0] * len(x.shape), list(x.shape)
    for dim, tap in enumerate(taps, start=at):
        last = init.shape[dim] - 1 + tap.shift + (tap.count - 1) * tap.dilation
        low[dim], high[dim] = max(0, -tap.shift), max(0, last + 1 - x.shape[dim])
        offsets[dim], sizes[dim] = max(0, tap.shift), last + 1 - tap.shift
    read = writer.slice(writer.pad(x, low, high), offsets, sizes, [1] * len(sizes))
    rest = len(w.shape) - len(taps)
    filters = writer.slice(
        w, [*(tap.first for tap in taps), *[0] * rest], [*(tap.count for tap in taps), *w.shape[len(taps) :]],
        [*(tap.step for tap in taps), *[1] * rest],
    )  # fmt: skip
    windows = [Window(window.spatial, window.kernel, 1, tap.dilation)
               for window, tap in zip(conv.windows, taps, strict=True)]  # fmt: skip
    return write(writer, conv, windows, read, filters, init)
