"""Nests of one op as a GPU runs it, with the template they belong to, and round figures of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import sympy
from nests import Op, Operand, matmul, shape_of

from felix_mlir.features import GpuMachineLimits, Program, derive_gpu_features
from felix_mlir.schedule import ComputeOp, Dispatch, GpuLimits, GpuTemplate, GpuTileLevel, Knob
from felix_mlir.schedule import dispatch as schedule_dispatch
from felix_mlir.schedule.template import knob_symbol
from felix_mlir.symbolic.nest import Access, Buffer, Loop, LoopNest, Stage

MACHINE = GpuMachineLimits(
    cores=3, vector_bytes=16, vector_registers=63, line_bytes=32, l1_bytes=1024, l2_bytes=1024, l3_bytes=4096,
    resident_threads=512, resident_workgroups=8, registers=4096, shared_bytes=8192, shared_banks=32, bank_bytes=4,
)  # fmt: skip
LIMITS = GpuLimits("round", 256, (256, 256, 256), 4096, (32,), ())
KINDS = {"p": "parallel", "r": "reduction"}


@dataclass(frozen=True)
class GpuCase:
    """An op, which of its operands go through shared memory, and the size of a matrix intrinsic, if one computes it.

    Every parallel loop has a tile a workgroup and, without an intrinsic, one a thread; every other one a serial tile.
    """

    op: Op
    promoted: tuple[int, ...] = ()
    intrinsic: tuple[int, ...] | None = None
    stages: int = 1
    subgroup_size: int = 32

    @property
    def levels(self) -> tuple[tuple[GpuTileLevel, ...], ...]:
        inner = GpuTileLevel.SUBGROUP if self.intrinsic else GpuTileLevel.THREAD
        parallel = (GpuTileLevel.WORKGROUP, inner)
        return tuple(parallel if kind == "p" else (GpuTileLevel.REDUCTION,) for kind in self.op.kinds)

    @property
    def knobs(self) -> tuple[str, ...]:
        return tuple(name(loop, level) for loop, own in enumerate(self.levels) for level in own)

    def nest(self) -> LoopNest:
        op = self.op
        extents = tuple(map(sympy.Integer, op.extents))
        accesses = tuple(
            Access(
                Buffer(o.name, tuple(map(sympy.sympify, shape_of(o, op.extents, op.slack))), o.element_bytes, False),
                tuple((index, 0) for index in o.index),
                not o.is_output,
                o.is_output,
            )
            for o in op.operands
        )
        covered = list(extents)
        loops: list[tuple[int, GpuTileLevel, sympy.Expr, sympy.Expr]] = []
        for level in GpuTileLevel:
            for loop, own in enumerate(self.levels):
                if level in own:
                    loops.append((loop, level, covered[loop], knob_symbol(name(loop, level))))
                    covered[loop] = loops[-1][-1]
        kinds = tuple(KINDS[kind] for kind in op.kinds)
        dims = tuple(range(len(extents)))
        body: tuple[Loop | Stage, ...] = (
            Stage(0, "op", kinds, extents, dims, tuple(covered), accesses, op.operations, True),
        )
        for loop, level, extent, step in reversed(loops):
            body = (Loop(loop, level, kinds[loop], extent, step, body),)
        return LoopNest("nest", body, tuple(access.buffer for access in accesses))

    def template(self) -> GpuTemplate:
        op = self.op
        operands = tuple(
            schedule_dispatch.Operand(
                shape_of(o, op.extents, op.slack), "f32", 8 * o.element_bytes,
                tuple(frozenset(index) for index in o.index), True, o.is_output,
            )
            for o in op.operands
        )  # fmt: skip
        root = ComputeOp(
            "op",
            tuple(KINDS[k] for k in op.kinds),
            op.extents,
            tuple(range(len(op.extents))),
            operands,
            (),
            True,
            False,
        )
        inner = GpuTileLevel.SUBGROUP if self.intrinsic else GpuTileLevel.THREAD
        sides = (
            sympy.ceiling(knob_symbol(name(loop, GpuTileLevel.WORKGROUP)) / knob_symbol(name(loop, inner)))
            for loop, kind in enumerate(op.kinds)
            if kind == "p"
        )
        knobs = [
            Knob(name(loop, level), loop, level, op.extents[loop], tuple(range(1, op.extents[loop] + 1)))
            for loop, own in enumerate(self.levels)
            for level in own
        ]
        tiles = {
            level: tuple(name(loop, level) if level in own else 0 for loop, own in enumerate(self.levels))
            for level in GpuTileLevel
        }
        return GpuTemplate(
            "case", Dispatch("case", "case", (root,)), tuple(knobs), (), (tiles,),
            threads=sympy.Mul(*sides) * (self.subgroup_size if self.intrinsic else 1),
            subgroup_size=self.subgroup_size, intrinsic=self.intrinsic, promoted=self.promoted,
            stages=sympy.Integer(self.stages), limits=LIMITS,
        )  # fmt: skip

    def program(self) -> Program:
        features = derive_gpu_features(self.nest(), self.template())
        names = [feature.name for feature in features]
        assert len(set(names)) == len(names)
        return Program([(f.name, f.expr) for f in features], self.knobs)


def name(loop: int, level: GpuTileLevel) -> str:
    return f"{level.value}_d{loop}"


def _elementwise(*inputs: tuple[dict[int, int], ...], extents: tuple[int, ...], element_bytes: int = 4) -> Op:
    output = Operand("out", tuple({loop: 1} for loop in range(len(extents))), True, element_bytes)
    operands = (*(Operand(f"in{i}", index, False, element_bytes) for i, index in enumerate(inputs)), output)
    return Op(extents, "p" * len(extents), operands, ((),) * len(extents))


CASES: dict[str, GpuCase] = {
    "matmul": GpuCase(matmul((24, 40, 16), 0)),
    "matmul_shared": GpuCase(matmul((24, 40, 16), 0), promoted=(0, 1)),
    "matmul_pipelined": GpuCase(matmul((24, 40, 16), 0), promoted=(0, 1), stages=3),
    "matmul_transposed": GpuCase(matmul((24, 40, 16), 0, transposed=True), promoted=(1,)),
    "matmul_ragged": GpuCase(matmul((11, 13, 7), 0), promoted=(0, 1)),
    "transpose": GpuCase(_elementwise(({1: 1}, {0: 1}), extents=(24, 32))),
    "broadcast_f16": GpuCase(_elementwise(({1: 1},), ({0: 1}, {1: 1}), extents=(24, 32), element_bytes=2)),
    "window": GpuCase(
        Op(
            (24, 3), "pr",
            (Operand("image", ({0: 2, 1: 1},)), Operand("kernel", ({1: 1},)), Operand("out", ({0: 1},), True)),
            ((), ()),
        )
    ),
    "intrinsic": GpuCase(matmul((48, 32, 32), 0), promoted=(0, 1), intrinsic=(16, 8, 16)),
}  # fmt: skip
