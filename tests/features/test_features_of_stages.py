"""Features of nests with several stages: other ops' loops around a stage, windows of a fused op, temporaries."""

from __future__ import annotations

import sympy
from feature_cases import MACHINE

from felix_mlir.features import Program, derive_cpu_features
from felix_mlir.schedule import TileLevel
from felix_mlir.schedule.template import knob_symbol
from felix_mlir.symbolic.nest import Access, Buffer, Loop, LoopNest, Stage

M, N, K = 5, 7, 4
EXTENTS = (M, N, K, 2 * M + 1)
TM, TN, TK = (knob_symbol(name) for name in ("tm", "tn", "tk"))


def buffer(name: str, *shape: sympy.Expr | int, temporary: bool = False) -> Buffer:
    return Buffer(name, tuple(map(sympy.sympify, shape)), 4, temporary)


def access(of: Buffer, *loops: int, writes: bool = False) -> Access:
    return Access(of, tuple(({loop: 1}, 0) for loop in loops), not writes, writes)


def stage(op: int, dims: tuple[int, ...], tile: tuple[sympy.Expr, ...], accesses: tuple[Access, ...], **more) -> Stage:
    extents = more.get("extents", tuple(sympy.Integer(EXTENTS[dim]) for dim in dims))
    kinds = tuple("reduction" if dim == 2 else "parallel" for dim in dims)
    return Stage(op, f"op{op}", kinds, extents, dims, tile, accesses, {"arith.addf": 1}, op == 1)


def loop(dim: int, level: TileLevel, step: sympy.Expr, *body: Loop | Stage) -> Loop:
    return Loop(dim, level, "parallel", sympy.Integer(EXTENTS[dim]), step, tuple(body))


def evaluate(nest: LoopNest, **knobs: int) -> dict[str, float]:
    program = Program([(f.name, f.expr) for f in derive_cpu_features(nest)], ("tm", "tn", "tk"))
    return {name: value.item() for name, value in program.exact(knobs, MACHINE).items()}


def fused() -> LoopNest:
    """A producer of the left operand inside the loops of a matmul: it runs anew for every tile of n."""
    left = buffer("left", TM, TK, temporary=True)
    right, output = buffer("right", K, N), buffer("output", M, N)
    producer = stage(0, (0, 2), (TM, TK), (access(left, 0, 1, writes=True),))
    matmul = stage(
        1, (0, 1, 2), (TM, TN, TK), (access(left, 0, 2), access(right, 2, 1), access(output, 0, 1, writes=True))
    )
    reduction = loop(2, TileLevel.VECTOR_REDUCTION, TK, producer, matmul)
    columns = loop(1, TileLevel.DISTRIBUTION, TN, reduction)
    return LoopNest("fused", (loop(0, TileLevel.DISTRIBUTION, TM, columns),), (left, right, output))


def test_a_stage_inside_foreign_loops_is_repeated():
    for tm, tn, tk in ((2, 3, 3), (5, 7, 4), (1, 1, 1), (4, 5, 3)):
        values = evaluate(fused(), tm=tm, tn=tn, tk=tk)
        executions = iterations = 0
        for m in range(0, M, tm):
            for _ in range(0, N, tn):
                for k in range(0, K, tk):
                    executions += 1
                    iterations += min(tm, M - m) * min(tk, K - k)
        assert values["op0/vector_reduction/tiles"] == executions
        assert values["op0/iterations"] == values["op0/arith.addf"] == iterations
        assert values["op0/vector_reduction/left/traffic"] == 4 * iterations
        assert values["op1/iterations"] == M * N * K


def test_temporaries_take_what_their_tile_takes():
    values = evaluate(fused(), tm=2, tn=3, tk=3)
    assert values["dispatch/left/allocated"] == values["dispatch/allocated"] == 2 * 3 * 4
    assert values["dispatch/workgroups"] == 3 * 3


def test_a_temporary_is_no_larger_than_a_tile_at_any_level():
    for tm, tn, tk in ((2, 3, 3), (5, 7, 4), (1, 1, 1), (4, 5, 3), (3, 2, 2)):
        values = evaluate(fused(), tm=tm, tn=tn, tk=tk)
        held = 4 * tm * tk
        assert values["op1/dispatch/left/footprint"] == values["op1/dispatch/left/traffic"] == held
        assert values["op1/distribution/left/footprint"] == held
        assert values["op1/vector_reduction/left/footprint"] == held
        assert values["op1/distribution/left/run"] == values["op1/dispatch/left/run"] == held
        by_workgroup = by_tile = 0
        for m in range(0, M, tm):
            for _ in range(0, N, tn):
                rows = min(tm, M - m)
                by_workgroup += 4 * rows * tk
                by_tile += sum(4 * rows * min(tk, K - k) for k in range(0, K, tk))
        assert values["op1/distribution/left/traffic"] == by_workgroup
        assert values["op1/vector_reduction/left/traffic"] == by_tile


def test_a_window_of_a_fused_op_is_computed_by_every_tile_that_asks_for_it():
    """A producer whose own loops nobody tiles covers 2 * tm + 1 iterations for each of ceil(5 / tm) tiles."""
    padded = buffer("padded", 2 * TM + 1, temporary=True)
    window = stage(0, (3,), (2 * TM + 1,), (access(padded, 0, writes=True),), extents=(sympy.Integer(2 * M + 1),))
    output = buffer("output", M)
    consumer = stage(1, (0,), (TM,), (access(output, 0, writes=True),))
    nest = LoopNest("window", (loop(0, TileLevel.DISTRIBUTION, TM, window, consumer),), (padded, output))
    values = evaluate(nest, tm=2, tn=1, tk=1)
    assert values["op0/iterations"] == 3 * 5
    assert values["op0/distribution/padded/footprint"] == 5 * 4
    assert values["op1/iterations"] == M
