"""Where each model input lies among the features of a nest: nests of any op become arrays of one meaning.

A nest has stages, a stage has operands and levels. Levels differ from structure to structure; a *slot* stands for "all
that runs inside the loops down to here", so that a level the structure lacks reads as the next outer one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from felix_mlir.features import Feature
from felix_mlir.features.derive import operands_of, unique_names
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched
from felix_mlir.schedule import GpuTileLevel, TileLevel
from felix_mlir.schedule.dispatch import PARALLEL
from felix_mlir.symbolic.nest import LoopNest, Stage

# The innermost slot is the tile a stage is vectorised as, whatever level gave it its size.
SLOTS = (
    "dispatch",
    TileLevel.DISTRIBUTION.value,
    TileLevel.CACHE_PARALLEL.value,
    TileLevel.CACHE_REDUCTION.value,
    TileLevel.VECTOR_COMMON_PARALLEL.value,
    "tile",
)
# How far inside each level is. A GPU's lie among the CPU's: what a core works on at a time, in one step of the
# reduction, in one thread.
_ORDER = ["dispatch", *(level.value for level in TileLevel)]
_PLACES = {
    **{name: place for place, name in enumerate(_ORDER)},
    GpuTileLevel.WORKGROUP.value: _ORDER.index(TileLevel.DISTRIBUTION),
    GpuTileLevel.REDUCTION.value: _ORDER.index(TileLevel.CACHE_REDUCTION),
    GpuTileLevel.SUBGROUP.value: _ORDER.index(TileLevel.VECTOR_COMMON_PARALLEL),
    GpuTileLevel.THREAD.value: _ORDER.index(TileLevel.VECTOR_COMMON_PARALLEL),
}

STAGE: tuple[str, ...] = (
    "iterations",
    "vector_operations",
    "lane_use",
    "code_size",
    "accumulators",
    "registers",
    "of_registers",
)
STAGE_CACHES: tuple[str, ...] = ("l1/traffic", "l2/traffic", "l3/traffic")
STAGE_LEVELS: tuple[str, ...] = ("working_set", "of_l1", "of_l2", "padding", "cut_tiles", "tiles")
OPERAND: tuple[str, ...] = ("accessed", "unique", "stride", "reuse_count", "reuse_iterations", "reuse_bytes")
OPERAND_LEVELS: tuple[str, ...] = ("footprint", "traffic", "lines", "run", "reuse")
LOOP: tuple[str, ...] = ("lane_use",)
LOOP_LEVELS: tuple[str, ...] = ("size", "cut")
LOOP_ROLES, OPERAND_ROLES = 10, 6
DISPATCH: tuple[str, ...] = ("workgroups", "waves", "core_use", "imbalance", "allocated")

# Scalar operations by how they are computed: multiply and add, by a vector instruction, by several, by a function.
OPERATION_CLASSES = ("fused", "simple", "division", "function")
_FUSED = {"arith.mulf", "arith.addf", "arith.muli", "arith.addi"}
_DIVISIONS = {"arith.divf", "arith.divsi", "arith.divui", "arith.remf", "math.sqrt", "math.rsqrt"}


@dataclass(frozen=True)
class Layout:
    """Column of every input in a nest's feature matrix; -1 where a nest has no such thing.

    Columns: `stage` [stages, len(STAGE) + len(STAGE_CACHES)], `stage_levels` [stages, slots, len(STAGE_LEVELS)],
    `operand` [stages, operands, len(OPERAND)], `operand_levels` [stages, operands, slots, len(OPERAND_LEVELS)], `loop`
    [stages, loops, len(LOOP)], `loop_levels` [stages, loops, slots, len(LOOP_LEVELS)], `dispatch` [len(DISPATCH)].

    Constants of the nest: `operations` [stages, classes] counts the scalar operations of one iteration. `roles`
    [stages, operands, OPERAND_ROLES] says whether an operand is read, is written, is temporary, is the first or the
    second of those only read, and its bytes per element; `is_operand` [stages, operands] where there is one.
    `loop_roles` [stages, loops, LOOP_ROLES] says whether a loop is a reduction and whether it shares an index with
    another (a window), then of the operands written, the first only read, the second and the others how many it
    reaches and in how many it is contiguous; `is_loop` [stages, loops] where there is one. `widest` [stages] has the
    bytes of the widest element a stage touches, `elements` the type it computes in.
    """

    stage: Tensor
    stage_levels: Tensor
    operand: Tensor
    operand_levels: Tensor
    loop: Tensor
    loop_levels: Tensor
    dispatch: Tensor
    operations: Tensor
    roles: Tensor
    is_operand: Tensor
    loop_roles: Tensor
    is_loop: Tensor
    widest: Tensor
    elements: tuple[str, ...]

    @staticmethod
    def of(nest: LoopNest, features: list[Feature]) -> Layout:
        """Find the inputs of a nest among the features derived from it."""
        columns = {feature.name: column for column, feature in enumerate(features)}
        stages = list(nest.stages())
        prefixes = unique_names(stage.name for _, stage in stages)
        operands = [list(operands_of(stage).items()) for _, stage in stages]
        most = max(len(named) for named in operands)
        shape = (len(stages), most)
        operand = torch.full((*shape, len(OPERAND)), -1)
        operand_levels = torch.full((*shape, len(SLOTS), len(OPERAND_LEVELS)), -1)
        stage_levels = torch.full((len(stages), len(SLOTS), len(STAGE_LEVELS)), -1)
        loops = max(len(stage.dims) for _, stage in stages)
        loop = torch.full((len(stages), loops, len(LOOP)), -1)
        loop_levels = torch.full((len(stages), loops, len(SLOTS), len(LOOP_LEVELS)), -1)
        loop_roles = torch.zeros(len(stages), loops, LOOP_ROLES)
        is_loop = torch.zeros(len(stages), loops, dtype=torch.bool)
        roles = torch.zeros(*shape, OPERAND_ROLES)
        is_operand = torch.zeros(shape, dtype=torch.bool)

        def find(*names: str) -> int:
            return columns.get("/".join(names), -1)

        for s, (prefix, (around, stage)) in enumerate(zip(prefixes, stages, strict=True)):
            levels = _levels_of_slots([level.name for level in Tiling(around, stage).levels])
            for slot, level in enumerate(levels):
                stage_levels[s, slot] = torch.tensor([find(prefix, level, name) for name in STAGE_LEVELS])
            for i in range(len(stage.dims)):
                is_loop[s, i] = True
                loop_roles[s, i] = torch.tensor(_loop_roles(stage, i, [touched for _, touched in operands[s]]))
                loop[s, i] = torch.tensor([find(prefix, f"l{i}", quantity) for quantity in LOOP])
                for slot, level in enumerate(levels):
                    loop_levels[s, i, slot] = torch.tensor([find(prefix, level, f"l{i}", q) for q in LOOP_LEVELS])
            inputs_before = 0
            for o, (name, touched) in enumerate(operands[s]):
                access = touched.access
                is_operand[s, o] = True
                element_bytes = float(access.buffer.element_bytes)
                is_read_only = not access.writes
                first, second = (is_read_only and number == inputs_before for number in (0, 1))
                inputs_before += is_read_only
                flags = (access.reads, access.writes, access.buffer.is_temporary, first, second)
                roles[s, o] = torch.tensor([*map(float, flags), element_bytes])
                operand[s, o] = torch.tensor([find(prefix, name, quantity) for quantity in OPERAND])
                for slot, level in enumerate(levels):
                    found = [find(prefix, level, name, quantity) for quantity in OPERAND_LEVELS]
                    operand_levels[s, o, slot] = torch.tensor(found)
        return Layout(
            stage=torch.tensor([[find(p, name) for name in (*STAGE, *STAGE_CACHES)] for p in prefixes]),
            stage_levels=stage_levels,
            operand=operand,
            operand_levels=operand_levels,
            loop=loop,
            loop_levels=loop_levels,
            dispatch=torch.tensor([find("dispatch", name) for name in DISPATCH]),
            operations=torch.tensor([_operations(stage) for _, stage in stages]),
            roles=roles,
            is_operand=is_operand,
            loop_roles=loop_roles,
            is_loop=is_loop,
            widest=roles[..., -1].amax(dim=1),
            elements=tuple(_element(stage) for _, stage in stages),
        )


def _levels_of_slots(names: list[str]) -> list[str]:
    """Per slot, the innermost level of a stage that is not inside the slot."""
    chosen: list[str] = []
    for slot in SLOTS[:-1]:
        inside = [name for name in names if _PLACES[name.split(".")[0]] <= _PLACES[slot]]
        chosen.append(inside[-1])
    return [*chosen, names[-1]]


def _loop_roles(stage: Stage, loop: int, operands: list[Touched]) -> list[float]:
    reads = [t for t in operands if not t.access.writes]
    writes = [t for t in operands if t.access.writes]
    is_window = any(loop in strides and len(strides) > 1 for t in operands for strides in t.strides)
    # Which input a loop reaches matters: a contraction is lowered to outer products along the loops of its second.
    groups = [writes, reads[:1], reads[1:2], reads[2:]]
    reached = [sum(loop in t.loops for t in group) for group in groups]
    contiguous = [sum(bool(t.strides) and t.strides[-1].get(loop) == 1 for t in group) for group in groups]
    return [float(stage.kinds[loop] != PARALLEL), float(is_window), *map(float, reached), *map(float, contiguous)]


def _operations(stage: Stage) -> list[float]:
    counts = dict.fromkeys(OPERATION_CLASSES, 0.0)
    for kind, number in stage.operations.items():
        if kind in _FUSED:
            counts["fused"] += number
        elif kind in _DIVISIONS:
            counts["division"] += number
        elif kind.startswith("math.") and kind not in ("math.absf", "math.fma"):
            counts["function"] += number
        else:
            counts["simple"] += number
    return list(counts.values())


def _element(stage: Stage) -> str:
    """The type a stage computes in, as rates name it."""
    size = max((access.buffer.element_bytes for access in stage.accesses), default=4)
    is_float = any(kind.endswith("f") or kind.startswith("math.") for kind in stage.operations) or not stage.operations
    names = {8: "f64", 4: "f32", 2: "f16", 1: "i8"} if is_float else {8: "i32", 4: "i32", 2: "i8", 1: "i8"}
    return names[size]
