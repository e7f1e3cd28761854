"""Loop nests of one op from a short description, with knobs for its tile sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from felix_mlir.schedule import TileLevel
from felix_mlir.schedule.template import knob_symbol
from felix_mlir.symbolic.nest import Access, Buffer, Loop, LoopNest, Stage

PARALLEL_LEVELS = (TileLevel.DISTRIBUTION, TileLevel.CACHE_PARALLEL, TileLevel.VECTOR_COMMON_PARALLEL)
REDUCTION_LEVELS = (TileLevel.CACHE_REDUCTION, TileLevel.VECTOR_REDUCTION)
# The order in which tile loops of the levels enclose each other in IREE's pipelines.
LEVELS = (
    TileLevel.DISTRIBUTION,
    TileLevel.CACHE_PARALLEL,
    TileLevel.CACHE_REDUCTION,
    TileLevel.VECTOR_COMMON_PARALLEL,
    TileLevel.VECTOR_REDUCTION,
)


@dataclass(frozen=True)
class Operand:
    """`index` has per buffer dimension the coefficient of each loop it depends on; shapes follow from extents."""

    name: str
    index: tuple[dict[int, int], ...]
    is_output: bool = False
    element_bytes: int = 4


@dataclass(frozen=True)
class Op:
    """One op: extents and kinds ("p" or "r") per loop, and at which levels each loop is tiled.

    Buffers are `slack` larger in each dimension than what the op touches.
    """

    extents: tuple[int, ...]
    kinds: str
    operands: tuple[Operand, ...]
    levels: tuple[tuple[TileLevel, ...], ...]
    slack: int = 0
    operations: dict[str, int] = field(default_factory=lambda: {"arith.mulf": 1, "arith.addf": 1})


def knob_name(loop: int, level: TileLevel) -> str:
    return f"{level.value}_d{loop}"


def knobs_of(op: Op) -> list[str]:
    return [knob_name(loop, level) for level in LEVELS for loop, own in enumerate(op.levels) if level in own]


def shape_of(operand: Operand, extents: Sequence[Any], slack: int) -> tuple[Any, ...]:
    return tuple(1 + slack + sum(c * (extents[loop] - 1) for loop, c in index.items()) for index in operand.index)


def build_nest(op: Op, symbolic_extents: bool = False) -> LoopNest:
    """The nest of `op`; extents are integers, or the symbols E0, E1, ..."""
    extents = tuple(
        sympy.Symbol(f"E{i}", integer=True, positive=True) if symbolic_extents else sympy.Integer(extent)
        for i, extent in enumerate(op.extents)
    )
    accesses = []
    for operand in op.operands:
        shape = shape_of(operand, extents, op.slack)
        buffer = Buffer(operand.name, tuple(map(sympy.sympify, shape)), operand.element_bytes, False)
        accesses.append(Access(buffer, tuple((i, 0) for i in operand.index), True, operand.is_output))
    kinds = tuple("parallel" if kind == "p" else "reduction" for kind in op.kinds)
    loops: list[tuple[int, TileLevel, sympy.Expr, sympy.Expr]] = []
    covered = list(extents)
    for level in LEVELS:
        for loop, own in enumerate(op.levels):
            if level in own:
                step = knob_symbol(knob_name(loop, level))
                loops.append((loop, level, covered[loop], step))
                covered[loop] = step
    stage = Stage(
        op=0,
        name="op",
        kinds=kinds,
        extents=extents,
        dims=tuple(range(len(extents))),
        tile=tuple(covered),
        accesses=tuple(accesses),
        operations=op.operations,
        is_root=True,
    )
    body: tuple[Loop | Stage, ...] = (stage,)
    for loop, level, extent, step in reversed(loops):
        body = (Loop(loop, level, kinds[loop], extent, step, body),)
    return LoopNest("nest", body, tuple(access.buffer for access in accesses))


def default_levels(kinds: str, depth: int = 3) -> tuple[tuple[TileLevel, ...], ...]:
    """Every loop tiled at the first `depth` levels of its kind."""
    return tuple((PARALLEL_LEVELS if kind == "p" else REDUCTION_LEVELS)[:depth] for kind in kinds)


def conv_2d(extents: tuple[int, ...], stride: int = 1, dilation: int = 1, depth: int = 3) -> Op:
    """NCHW convolution, loops n, f, oh, ow, c, kh, kw."""
    image = ({0: 1}, {4: 1}, {2: stride, 5: dilation}, {3: stride, 6: dilation})
    kernel = ({1: 1}, {4: 1}, {5: 1}, {6: 1})
    output = ({0: 1}, {1: 1}, {2: 1}, {3: 1})
    operands = (Operand("image", image), Operand("kernel", kernel), Operand("output", output, is_output=True))
    return Op(extents, "pppprrr", operands, default_levels("pppprrr", depth))


def matmul(extents: tuple[int, int, int], depth: int = 3, transposed: bool = False) -> Op:
    """Loops m, n, k."""
    right = ({1: 1}, {2: 1}) if transposed else ({2: 1}, {1: 1})
    operands = (
        Operand("left", ({0: 1}, {2: 1})),
        Operand("right", right),
        Operand("output", ({0: 1}, {1: 1}), is_output=True),
    )
    return Op(extents, "ppr", operands, default_levels("ppr", depth))


def depthwise(extents: tuple[int, ...], stride: int = 1, dilation: int = 1) -> Op:
    """NHWC depthwise convolution without batch, loops oh, ow, c, kh, kw."""
    image = ({0: stride, 3: dilation}, {1: stride, 4: dilation}, {2: 1})
    operands = (
        Operand("image", image),
        Operand("kernel", ({3: 1}, {4: 1}, {2: 1})),
        Operand("output", ({0: 1}, {1: 1}, {2: 1}), is_output=True),
    )
    return Op(extents, "ppprr", operands, default_levels("ppprr", 2))


def pooling(extents: tuple[int, ...], stride: int) -> Op:
    """NCHW pooling of one channel, loops oh, ow, kh, kw; the window operand of linalg's op is not read."""
    operands = (
        Operand("image", ({0: stride, 2: 1}, {1: stride, 3: 1})),
        Operand("output", ({0: 1}, {1: 1}), is_output=True),
    )
    return Op(extents, "pprr", operands, default_levels("pprr", 3), operations={"arith.maximumf": 1})


def transpose(extents: tuple[int, int]) -> Op:
    operands = (Operand("input", ({1: 1}, {0: 1})), Operand("output", ({0: 1}, {1: 1}), is_output=True))
    return Op(extents, "pp", operands, default_levels("pp"), operations={})


def broadcast_add(extents: tuple[int, int]) -> Op:
    operands = (
        Operand("row", ({1: 1},)),
        Operand("scalar", ()),
        Operand("output", ({0: 1}, {1: 1}), is_output=True, element_bytes=2),
    )
    return Op(extents, "pp", operands, default_levels("pp"), operations={"arith.addf": 2})


def reduction(extents: tuple[int, int]) -> Op:
    operands = (Operand("input", ({0: 1}, {1: 1}), element_bytes=8), Operand("output", ({0: 1},), is_output=True))
    return Op(extents, "pr", operands, default_levels("pr"), operations={"arith.addf": 1})


def diagonal(extents: tuple[int, int]) -> Op:
    """A matrix's diagonal times a vector: one loop in two dimensions of a buffer."""
    operands = (
        Operand("matrix", ({0: 1}, {0: 1})),
        Operand("vector", ({1: 1},)),
        Operand("output", ({0: 1}, {1: 1}), is_output=True),
    )
    return Op(extents, "pp", operands, default_levels("pp"))


NAMED: dict[str, Op] = {
    "matmul": matmul((7, 9, 5)),
    "matmul_transposed": matmul((6, 5, 8), transposed=True),
    "conv_2d": conv_2d((1, 3, 5, 4, 2, 3, 2), depth=2),
    "conv_2d_strided": conv_2d((2, 2, 3, 4, 2, 2, 3), stride=2, depth=2),
    "conv_2d_dilated": conv_2d((1, 2, 4, 5, 2, 3, 3), dilation=2, depth=1),
    "depthwise": depthwise((4, 5, 6, 3, 2), stride=2),
    "depthwise_dilated": depthwise((5, 4, 3, 3, 3), dilation=2),
    "pooling": pooling((6, 7, 3, 2), stride=2),
    "transpose": transpose((11, 13)),
    "broadcast_add": broadcast_add((9, 21)),
    "reduction": reduction((8, 19)),
    "diagonal": diagonal((9, 6)),
}
