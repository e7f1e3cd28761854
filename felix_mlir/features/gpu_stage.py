"""Features of one stage on a GPU: what its threads hold, and what moves between memory, shared memory and them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import sympy

from felix_mlir.features.derive import named_stages
from felix_mlir.features.feature import Feature
from felix_mlir.features.gpu_lanes import LaneAccess, Lanes, lanes_of
from felix_mlir.features.gpu_machine import GPU_MACHINE
from felix_mlir.features.memory import tile_bytes
from felix_mlir.features.pieces import Size, total
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched
from felix_mlir.schedule import GpuTemplate, GpuTileLevel
from felix_mlir.schedule.dispatch import PARALLEL
from felix_mlir.symbolic.nest import LoopNest

_REGISTER_BYTES = 4
_OF_WORKGROUP = (GpuTileLevel.WORKGROUP, GpuTileLevel.REDUCTION)


@dataclass(frozen=True)
class GpuOperand:
    """An operand of a stage as a GPU moves it.

    `is_loaded` when it comes from memory (no stage of the nest makes it), `is_stored` when it goes there and no later
    stage writes it again; what is neither stays in registers. `is_promoted` when it goes through shared memory.
    """

    touched: Touched
    is_loaded: bool
    is_stored: bool
    is_promoted: bool


def gpu_stages(nest: LoopNest, template: GpuTemplate) -> list[GpuStage]:
    """The stages of a nest in program order, named as all their features are."""
    stages = named_stages(nest)
    writers = [
        touched.access.buffer for _, _, operands in stages for touched in operands.values() if touched.access.writes
    ]
    root = template.dispatch.root
    # By the root op's operand numbers: operands that are no tensors or only give a shape have no access.
    promoted = {frozenset(enumerate(root.operands[number].indices)) for number in template.promoted}
    found: list[GpuStage] = []
    written = 0
    for name, tiling, operands in stages:
        of_gpu: dict[str, GpuOperand] = {}
        for operand_name, touched in operands.items():
            access = touched.access
            written += access.writes
            loops = frozenset(enumerate(frozenset(strides) for strides in touched.strides))
            of_gpu[operand_name] = GpuOperand(
                touched,
                is_loaded=access.reads and access.buffer not in writers,
                is_stored=access.writes and not access.buffer.is_temporary and access.buffer not in writers[written:],
                is_promoted=tiling.stage.is_root and not access.writes and loops in promoted,
            )
        found.append(GpuStage(name, tiling, of_gpu, template))
    return found


@dataclass(frozen=True)
class GpuStage:
    """A stage with its loops and operands."""

    name: str
    tiling: Tiling
    operands: dict[str, GpuOperand]
    template: GpuTemplate

    def features(self) -> Iterator[Feature]:
        """Yield the features that only a GPU has."""
        operations = max(1, sum(self.tiling.stage.operations.values())) * self.tiling.iterations
        loaded = {name: o for name, o in self.operands.items() if o.is_loaded or o.is_stored}
        yield Feature(f"{self.name}/registers_per_thread", "registers", self.registers)
        yield Feature(f"{self.name}/accumulators_per_thread", "elements", self._accumulators)
        yield Feature(f"{self.name}/intrinsic_use", "1", self._intrinsic_use)
        for name, operand in loaded.items():
            yield from self._operand(f"{self.name}/{name}", operand)
        moved = sympy.Add(*map(self._moved, loaded.values()))
        on_chip = sympy.Add(*map(self._on_chip, loaded.values()))
        unique = sympy.Add(*(o.touched.bytes(self.tiling.stage.extents) for o in loaded.values()))
        yield Feature(f"{self.name}/global", "bytes", moved)
        yield Feature(f"{self.name}/on_chip", "bytes", on_chip)
        yield Feature(f"{self.name}/unique", "bytes", unique)
        yield Feature(f"{self.name}/in_flight", "bytes", self._in_flight)
        if loaded:
            yield Feature(f"{self.name}/global_intensity", "operations per byte", operations / moved)
            yield Feature(f"{self.name}/on_chip_intensity", "operations per byte", operations / on_chip)

    @cached_property
    def shared_memory(self) -> Size:
        """Bytes of shared memory that one tile of all promoted operands takes."""
        promoted = (o for o in self.operands.values() if o.is_promoted)
        return sympy.Add(*(o.touched.bytes(self._workgroup_box) for o in promoted))

    @cached_property
    def registers(self) -> Size:
        """Registers one thread needs at least: what it accumulates, and what it reads in one step of the reduction."""
        step = self._step
        sizes = [o.touched.bytes(self._box if o.touched.access.writes else step) for o in self.operands.values()]
        return sympy.ceiling(sympy.Add(*sizes) / (_REGISTER_BYTES * self._sharing))

    @cached_property
    def _accumulators(self) -> Size:
        """Results of one thread, which it can compute independently of each other."""
        written = (o.touched.elements(self._box) for o in self.operands.values() if o.touched.access.writes)
        return sympy.ceiling(sympy.Add(*written) / self._sharing)

    @cached_property
    def _intrinsic_use(self) -> Size:
        """Iterations over those of the matrix intrinsics that cover the innermost tiles; 1 for scalar code."""
        intrinsic = self.template.intrinsic
        if intrinsic is None or not self.tiling.stage.is_root:
            return sympy.Integer(1)
        depth = len(self.tiling.around)
        shares: list[Size] = []
        for dim, size in zip(self.tiling.stage.dims, intrinsic, strict=True):
            if size > 1:
                covered = total([self.tiling.pieces(dim, depth)], lambda s, n=size: n * sympy.ceiling(s / n))
                shares.append(self.tiling.extent(dim) / covered)
        return sympy.Mul(*shares)

    @cached_property
    def _lanes(self) -> Lanes | None:
        return lanes_of(self.tiling, self.template.subgroup_size)

    @property
    def _sharing(self) -> int:
        """Threads that share the innermost tile: a subgroup, where the compiler deals it out itself."""
        return 1 if self._lanes is not None else self.template.subgroup_size

    @cached_property
    def _depth(self) -> int:
        """Loops around what a workgroup works on at a time."""
        return sum(loop.level in _OF_WORKGROUP for loop in self.tiling.around)

    @cached_property
    def _workgroup_box(self) -> tuple[Size, ...]:
        return self.tiling.box(self._depth)

    @cached_property
    def _box(self) -> tuple[Size, ...]:
        return self.tiling.box(len(self.tiling.around))

    @property
    def _step(self) -> tuple[Size, ...]:
        """The innermost tile in one step of the reduction: one iteration, or one intrinsic."""
        intrinsic = self.template.intrinsic if self.tiling.stage.is_root else None
        sizes = intrinsic or (1,) * len(self._box)
        return tuple(
            box if kind == PARALLEL else sympy.Integer(max(size, 1))
            for box, kind, size in zip(self._box, self.tiling.stage.kinds, sizes, strict=True)
        )

    def _kept(self, operand: GpuOperand) -> list[int]:
        """Dimensions of the serial reduction loops along which a thread keeps an operand: none of its own."""
        stage = self.tiling.stage
        loops = (loop for loop, kind in enumerate(stage.kinds) if kind != PARALLEL)
        return [stage.dims[loop] for loop in loops if loop not in operand.touched.loops]

    def _moved(self, operand: GpuOperand) -> Size:
        """Bytes between memory and all workgroups: each tile transfers its lines, used whole or not."""
        box, touched = self._workgroup_box, operand.touched
        used = touched.bytes(box) / (touched.lines(box) * GPU_MACHINE["line_bytes"])
        return tile_bytes(self.tiling, self._depth, touched, self._kept(operand)) / used

    def _on_chip(self, operand: GpuOperand) -> Size:
        """Bytes that a multiprocessor's memory could move in the time that all threads' accesses take it."""
        at_threads = tile_bytes(self.tiling, len(self.tiling.around), operand.touched, self._kept(operand))
        if self._lanes is not None:
            access = self._access(operand, self._lanes)
            rounds = access.bank_rounds if operand.is_promoted else self._line_rounds(access)
            width = GPU_MACHINE["shared_banks"] * GPU_MACHINE["bank_bytes"]
            element = operand.touched.access.buffer.element_bytes
            at_threads *= rounds * width / (self._lanes.total * access.vector_elements * element)
        if not operand.is_promoted:
            return at_threads
        # What is promoted is also written.
        return at_threads + tile_bytes(self.tiling, self._depth, operand.touched, self._kept(operand))

    @staticmethod
    def _line_rounds(access: LaneAccess) -> Size:
        width = GPU_MACHINE["shared_banks"] * GPU_MACHINE["bank_bytes"]
        return sympy.ceiling(access.lines * GPU_MACHINE["line_bytes"] / width)

    def _access(self, operand: GpuOperand, lanes: Lanes) -> LaneAccess:
        touched = operand.touched
        if not operand.is_promoted:
            return LaneAccess(touched, lanes, touched.access.buffer.shape)
        spans = (
            1 + sympy.Add(*(stride * (self._workgroup_box[loop] - 1) for loop, stride in strides.items()))
            for strides in touched.strides
        )
        return LaneAccess(touched, lanes, tuple(spans))

    @cached_property
    def _in_flight(self) -> Size:
        """Bytes that one workgroup has asked memory for at a time: what it works on next."""
        loaded = [o for o in self.operands.values() if o.is_loaded]
        asked = loaded or [o for o in self.operands.values() if o.is_stored]
        sizes: list[Size] = []
        for operand in asked:
            if operand.is_promoted:
                sizes.append(operand.touched.bytes(self._workgroup_box) * self.template.stages)
            else:
                sizes.append(operand.touched.bytes(self._box) * self.template.threads / self._sharing)
        return sympy.Add(*sizes)

    def _operand(self, here: str, operand: GpuOperand) -> Iterator[Feature]:
        yield Feature(f"{here}/global", "bytes", self._moved(operand))
        yield Feature(f"{here}/on_chip", "bytes", self._on_chip(operand))
        if self._lanes is None:
            return
        access = self._access(operand, self._lanes)
        yield Feature(f"{here}/vector", "elements", access.vector_elements)
        if operand.is_promoted:
            yield Feature(f"{here}/bank_rounds", "rounds", access.bank_rounds)
            fewest = sympy.ceiling(access.useful_bytes / (GPU_MACHINE["shared_banks"] * GPU_MACHINE["bank_bytes"]))
            yield Feature(f"{here}/bank_conflicts", "1", access.bank_rounds / fewest)
        else:
            yield Feature(f"{here}/transactions", "lines", access.lines)
            useful = access.useful_bytes / (access.lines * GPU_MACHINE["line_bytes"])
            yield Feature(f"{here}/coalescing", "1", useful)
