"""Drawn convolutions and poolings of every layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from programs import Case, generic, multiply_add, tensor, zeros

# Letters of a layout: n, b batch; g, e groups; c, i reduced channels; f, o channels of the output; d, h, w spatial.
# The kernel's loops are the spatial letters' capitals.
SPATIAL = "dhw"

# Named ops as input, filter, output: those that have sketches enough.
NAMED = {
    "conv_1d_ncw_fcw": ("ncw", "fcw", "nfw"),
    "conv_2d_nchw_fchw": ("nchw", "fchw", "nfhw"),
    "conv_2d_nhwc_hwcf": ("nhwc", "hwcf", "nhwf"),
    "conv_2d_ngchw_gfchw": ("ngchw", "gfchw", "ngfhw"),
    "conv_3d_ncdhw_fcdhw": ("ncdhw", "fcdhw", "nfdhw"),
    "depthwise_conv_1d_nwc_wcm": ("nwg", "wgf", "nwgf"),
    "depthwise_conv_2d_nchw_chw": ("nghw", "ghw", "nghw"),
    "depthwise_conv_3d_ncdhw_cdhw": ("ngdhw", "gdhw", "ngdhw"),
    "pooling_nchw_max": ("nghw", "hw", "nghw"),
    "pooling_nchw_sum": ("nghw", "hw", "nghw"),
}


@dataclass(frozen=True)
class Shape:
    """A convolution's layouts and sizes; sizes of spatial letters are the output's.

    The input has `unread` elements more than are read, in every spatial dimension with a window of several elements:
    IREE itself refuses ops that leave elements of another dimension unread.
    """

    layouts: tuple[str, str, str]
    sizes: dict[str, int]
    kernel: dict[str, int]
    stride: dict[str, int] = field(default_factory=dict)
    dilation: dict[str, int] = field(default_factory=dict)
    unread: int = 0
    name: str = ""

    @property
    def spatial(self) -> list[str]:
        return [letter for letter in SPATIAL if letter in self.layouts[0]]

    def input_size(self, letter: str) -> int:
        if letter not in SPATIAL:
            return self.sizes[letter]
        stride, dilation = self.stride.get(letter, 1), self.dilation.get(letter, 1)
        unread = self.unread if self.kernel[letter] > 1 else 0
        return (self.sizes[letter] - 1) * stride + (self.kernel[letter] - 1) * dilation + 1 + unread

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        x, w, y = self.layouts
        return (
            tuple(map(self.input_size, x)),
            tuple(self.kernel.get(letter, 0) or self.sizes[letter] for letter in w),
            tuple(self.sizes[letter] for letter in y),
        )

    def op(self, x: str, w: str, init: str, element: str, out: str, body: str) -> str:
        """The op as its name if it has one, else as linalg.generic."""
        types = [tensor(shape, kind) for shape, kind in zip(self.shapes(), (element, element, out), strict=True)]
        operands = f"ins({x}, {w} : {types[0]}, {types[1]}) outs({init} : {types[2]})"
        if self.name:
            strides, dilations = (
                f"dense<{[numbers.get(letter, 1) for letter in self.spatial]}> : tensor<{len(self.spatial)}xi64>"
                for numbers in (self.stride, self.dilation)
            )
            attributes = f"{{strides = {strides}, dilations = {dilations}}}"
            return f"  %r = linalg.{self.name} {attributes} {operands} -> {types[2]}"
        kernel = {letter: letter.upper() for letter in self.spatial}
        reads = {
            letter: f"{letter} * {self.stride.get(letter, 1)} + {kernel[letter]} * {self.dilation.get(letter, 1)}"
            for letter in self.spatial
        }
        maps = [", ".join(reads.get(letter, letter) for letter in self.layouts[0]),
                ", ".join(kernel.get(letter, letter) for letter in self.layouts[1]),
                ", ".join(self.layouts[2])]  # fmt: skip
        reduced = "".join(letter for letter in self.layouts[0] if letter not in (*self.layouts[2], *SPATIAL))
        reduced += "".join(kernel.values())
        loops = self.layouts[2] + reduced
        return generic(maps, loops, reduced, operands, body, types[2])


def draw_shape(rng: np.random.Generator, layouts: tuple[str, str, str], name: str = "") -> Shape:
    letters = set("".join(layouts))
    small = {"n": (1, 2), "b": (1, 3), "g": (2, 3), "e": (2, 3), "c": (1, 5), "i": (2, 3), "f": (1, 5), "o": (2, 3)}
    sizes = {letter: int(rng.integers(low, high + 1)) for letter, (low, high) in small.items() if letter in letters}
    spatial = [letter for letter in SPATIAL if letter in letters]
    sizes |= {letter: int(rng.integers(2, 6)) for letter in spatial}
    kernel = {letter: int(rng.choice([1, 2, 3], p=[0.1, 0.4, 0.5])) for letter in spatial}
    if rng.random() < 0.2:
        kernel = dict.fromkeys(spatial, 1)
    stride = {letter: int(rng.integers(1, 4)) for letter in spatial}
    dilation = {letter: int(rng.integers(1, 3)) for letter in spatial}
    return Shape(layouts, sizes, kernel, stride, dilation, unread=int(rng.random() < 0.3), name=name)


def draw_dense_shape(rng: np.random.Generator, layouts: tuple[str, str, str], name: str = "") -> Shape:
    """A convolution of stride 1, for an input that is spread out: several filter elements meet elements of it."""
    shape = draw_shape(rng, layouts, name)
    kernel = {letter: int(rng.integers(2, 6)) for letter in shape.spatial}
    dilation = {letter: int(rng.choice([1, 2], p=[0.75, 0.25])) for letter in shape.spatial}
    return replace(shape, stride={}, kernel=kernel, dilation=dilation)


def shuffled(rng: np.random.Generator, layouts: tuple[str, str, str]) -> tuple[str, str, str]:
    x, w, y = ("".join(rng.permutation(list(letters))) for letters in layouts)
    return x, w, y


def convolution(label: str, shape: Shape, element: str = "f32", out: str = "f32", *, bias: bool = False) -> Case:
    """A convolution that adds to zeros, or to a broadcast bias."""
    x, w, y = shape.shapes()
    init = zeros("%z", y, out)
    inputs = [(x, element), (w, element)]
    if bias:
        letters = shape.layouts[2]
        own = [dim for dim, letter in enumerate(letters) if letter in "gfeo"]
        inputs.append((tuple(y[dim] for dim in own), out))
        others = [dim for dim in range(len(y)) if dim not in own]
        init = (f"  %e = tensor.empty() : {tensor(y, out)}\n"
                f"  %z = linalg.broadcast ins(%c : {tensor(*inputs[-1])}) outs(%e : {tensor(y, out)}) "
                f"dimensions = {others}")  # fmt: skip
    lines = f"{init}\n{shape.op('%a', '%b', '%z', element, out, multiply_add(element, out))}"
    return Case(f"{label} {shape} {element}", tuple(inputs), (y, out), lines)


def pooling(label: str, shape: Shape, kind: str, element: str = "f32") -> Case:
    """A pooling; its window is a tensor without elements that matter."""
    x, w, y = shape.shapes()
    op = {("max", "f32"): "arith.maximumf", ("sum", "f32"): "arith.addf", ("max", "i32"): "arith.maxsi"}[kind, element]
    start = {"sum": "", "max": "-3.0e38" if element == "f32" else "-99"}[kind]
    body = (f"  ^bb0(%p: {element}, %q: {element}, %o: {element}):\n    %m = {op} %o, %p : {element}\n"
            f"    linalg.yield %m : {element}")  # fmt: skip
    lines = (f"{zeros('%z', y, element, start)}\n  %w = tensor.empty() : {tensor(w, element)}\n"
             f"{shape.op('%a', '%w', '%z', element, element, body)}")  # fmt: skip
    return Case(f"{label} {shape} {element}", ((x, element),), (y, element), lines)


def transposed(label: str, shape: Shape, rng: np.random.Generator, *, bias: bool = False) -> Case:
    """A convolution of stride 1 whose input is spread out over zeros: from some offset on, every few elements."""
    x, _, y = shape.shapes()
    before, offsets, strides = [], [], []
    for letter, size in zip(shape.layouts[0], x, strict=True):
        # Not more than a few phases, each of which is a convolution to compile.
        step = min(int(rng.integers(1, 4)), 6 // math.prod(strides)) if letter in SPATIAL else 1
        offset = int(rng.integers(0, min(3, size))) if letter in SPATIAL else 0
        # As many as fit, or one less: then there are more zeros behind, as output padding gives.
        count = max(1, (size - 1 - offset) // step + 1 - (int(rng.integers(0, 2)) if letter in SPATIAL else 0))
        before.append(count)
        offsets.append(offset)
        strides.append(step)
    base = convolution(label, shape, bias=bias)
    where = f"{offsets}{before}{strides}"
    from_to = f"{tensor(before, 'f32')} into {tensor(x, 'f32')}"
    lines = (f"{zeros('%spread', x, 'f32')}\n  %x = tensor.insert_slice %a into %spread{where} : {from_to}\n"
             f"{base.lines.replace('%a,', '%x,')}")  # fmt: skip
    return Case(f"{label} {where} {shape}", ((tuple(before), "f32"), *base.inputs[1:]), (y, "f32"), lines)


def named_cases(rng: np.random.Generator) -> list[Case]:
    """Every named op, with zeros and biases in turn."""
    cases: list[Case] = []
    for number, (name, layouts) in enumerate(NAMED.items()):
        shape = draw_shape(rng, layouts, name)
        if name.startswith("pooling"):
            cases.append(pooling(name, shape, name.rsplit("_", 1)[1]))
        else:
            cases.append(convolution(name, shape, bias=number % 2 == 1))
    return cases


def generic_cases(rng: np.random.Generator) -> list[Case]:
    """Layouts that linalg has no name for, several loops of a role, and narrow types."""
    plain = [("nchw", "fchw", "nfhw"), ("nhwc", "hwcf", "nhwf"), ("ncw", "fcw", "nfw"), ("ncdhw", "fcdhw", "nfdhw")]
    special = [("nbgcihw", "gcifohw", "nbgfohw"), ("chw", "fchw", "fhw"), ("ngehw", "gehw", "ngehw"),
               ("hw", "hw", "hw"), ("nghw", "gfhw", "ngfhw")]  # fmt: skip
    cases = [convolution("mixed", draw_shape(rng, shuffled(rng, layouts)), bias=rng.random() < 0.5)
             for layouts in (*plain, *special)]  # fmt: skip
    narrow = [(plain[0], "f16", "f32"), (("ngchw", "gfchw", "ngfhw"), "i8", "i32")]
    cases += [convolution("narrow", draw_shape(rng, layouts), element, out, bias=out == "i32")
              for layouts, element, out in narrow]  # fmt: skip
    pools = [
        (("nghw", "hw", "nghw"), "max", "i32"),
        (("gw", "w", "gw"), "sum", "f32"),
        (("ndhwg", "dhw", "ndhwg"), "max", "f32"),
    ]
    cases += [
        pooling("mixed", draw_shape(rng, shuffled(rng, layouts)), kind, element) for layouts, kind, element in pools
    ]
    return cases


def transposed_cases(rng: np.random.Generator) -> list[Case]:
    names = ["conv_2d_nchw_fchw", "conv_2d_nhwc_hwcf", "conv_2d_ngchw_gfchw",
             "depthwise_conv_2d_nchw_chw"]  # fmt: skip
    cases = [transposed(name, draw_dense_shape(rng, NAMED[name], name), rng, bias=number % 2 == 1)
             for number, name in enumerate(names)]  # fmt: skip
    mixed = [("ncdhw", "fcdhw", "nfdhw"), ("ngchw", "gfchw", "ngfhw"), ("hw", "hw", "hw")]
    return cases + [transposed("mixed", draw_dense_shape(rng, shuffled(rng, layouts)), rng) for layouts in mixed]
