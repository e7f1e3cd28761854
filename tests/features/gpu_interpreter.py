"""Runs a small op as a GPU does, workgroup by workgroup and thread by thread, and counts what moves.

Nothing here is computed from a formula of the features.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
from gpu_cases import LIMITS, MACHINE, GpuCase, name
from nests import Operand, shape_of

from felix_mlir.schedule import GpuTileLevel

Box = tuple[tuple[int, int], ...]  # first and end of each loop
WIDTH = MACHINE.shared_banks * MACHINE.bank_bytes


def tiles(box: Box, steps: Mapping[int, int]) -> Iterator[Box]:
    """The tiles of a box, those of the last loop following each other."""
    ranges = [
        [(at, min(at + steps[loop], end)) for at in range(start, end, steps[loop])] if loop in steps else [(start, end)]
        for loop, (start, end) in enumerate(box)
    ]
    yield from itertools.product(*ranges)


class Gpu:
    """One case with the sizes of its knobs."""

    def __init__(self, case: GpuCase, knobs: Mapping[str, int]) -> None:
        self.case, self.op = case, case.op
        self.sizes: dict[tuple[str | int, ...], int] = {}
        self.steps = {
            level: {loop: knobs[name(loop, level)] for loop, own in enumerate(case.levels) if level in own}
            for level in GpuTileLevel
        }
        self.shapes = {o.name: shape_of(o, self.op.extents, self.op.slack) for o in self.op.operands}
        self.workgroups = list(tiles(tuple((0, e) for e in self.op.extents), self.steps[GpuTileLevel.WORKGROUP]))
        self.first = next(iter(self.serial(self.workgroups[0])))

    def serial(self, workgroup: Box) -> Iterator[Box]:
        return tiles(workgroup, self.steps[GpuTileLevel.REDUCTION])

    def threads(self, box: Box) -> list[Box]:
        return list(tiles(box, self.steps[GpuTileLevel.THREAD] or self.steps[GpuTileLevel.SUBGROUP]))

    def indices(self, operand: Operand, box: Box) -> np.ndarray:
        """What an operand's part of a box touches, each once: [n, dimensions]."""
        grid = np.meshgrid(*(np.arange(*r) for r in box), indexing="ij")
        points = np.stack([axis.ravel() for axis in grid], axis=1)
        columns = [sum(c * points[:, loop] for loop, c in index.items()) for index in operand.index]
        return np.unique(np.stack(columns, axis=1), axis=0)

    def touched(self, operand: Operand, box: Box) -> int:
        # Boxes of the same size touch equally much, wherever they are.
        key = (operand.name, *(end - start for start, end in box))
        if key not in self.sizes:
            self.sizes[key] = len(self.indices(operand, box)) * operand.element_bytes
        return self.sizes[key]

    def held_tiles(self, operand: Operand) -> list[Box]:
        """What a workgroup works on at a time; along reductions the operand does not have it keeps what it holds."""
        kept = self.kept(operand)
        return [box for w in self.workgroups for box in self.serial(w) if all(box[loop][0] == 0 for loop in kept)]

    def kept(self, operand: Operand) -> list[int]:
        own = {loop for index in operand.index for loop in index}
        return [loop for loop, kind in enumerate(self.op.kinds) if kind == "r" and loop not in own]

    def vector(self, operand: Operand, shape: tuple[int, ...], origin: np.ndarray) -> int:
        """The widest aligned chunk that every thread's tile is made of; a window is read element by element."""
        if list(operand.index[-1].values()) != [1]:
            return 1
        width = MACHINE.vector_bytes // operand.element_bytes
        while width > 1 and not self._made_of(operand, shape, origin, width):
            width //= 2
        return max(width, 1)

    def _made_of(self, operand: Operand, shape: tuple[int, ...], origin: np.ndarray, width: int) -> bool:
        for thread in self.threads(self.first):
            at = np.ravel_multi_index(tuple((self.indices(operand, thread) - origin).T), shape)
            chunks, counts = np.unique(at // width, return_counts=True)
            if (counts != width).any() or len(chunks) == 0:
                return False
        # A row of the buffer that ends within a chunk would put the next tile's off.
        return len(shape) == 1 or shape[-1] % width == 0

    def lanes(self, operand: Operand) -> np.ndarray:
        """The first element of each lane's tile: [lanes, dimensions]."""
        lanes = self.threads(self.first)[: self.case.subgroup_size]
        return np.stack([self.indices(operand, lane)[0] for lane in lanes])

    def transactions(self, operand: Operand) -> int:
        """Lines that the first subgroup touches with one vector a lane, every row of them beginning one."""
        vector = self.vector(operand, self.shapes[operand.name], np.zeros(len(operand.index), int))
        lanes = self.lanes(operand)
        found: set[tuple[int, ...]] = set()
        for lane in lanes:
            row = lanes[(lanes[:, :-1] == lane[:-1]).all(axis=1)]
            begin = (lane[-1] - row[:, -1].min()) * operand.element_bytes
            for byte in range(begin, begin + vector * operand.element_bytes):
                found.add((*lane[:-1], byte // MACHINE.line_bytes))
        return len(found)

    def promoted_shape(self, operand: Operand) -> tuple[tuple[int, ...], np.ndarray]:
        whole = self.indices(operand, self.first)
        return tuple(whole.max(axis=0) - whole.min(axis=0) + 1), whole.min(axis=0)

    def bank_rounds(self, operand: Operand) -> int:
        shape, origin = self.promoted_shape(operand)
        vector = self.vector(operand, shape, origin)
        at = np.ravel_multi_index(tuple((self.lanes(operand) - origin).T), shape)
        words = {
            (int(a) + i) * operand.element_bytes // MACHINE.bank_bytes for a in set(at.tolist()) for i in range(vector)
        }
        banks = [word % MACHINE.shared_banks for word in words]
        return max(banks.count(bank) for bank in set(banks))

    def on_chip(self, operand: Operand, is_promoted: bool) -> float:
        """Bytes its accesses take of a multiprocessor's memory, one subgroup's access at a time."""
        per_thread = sum(self.touched(operand, t) for box in self.held_tiles(operand) for t in self.threads(box))
        if self.case.intrinsic is None:
            shape, origin = self.promoted_shape(operand)
            if not is_promoted:
                shape, origin = self.shapes[operand.name], np.zeros(len(operand.index), int)
            lanes = min(self.case.subgroup_size, len(self.threads(self.first)))
            bytes_each = lanes * self.vector(operand, shape, origin) * operand.element_bytes
            lines = 0 if is_promoted else self.transactions(operand) * MACHINE.line_bytes
            rounds = self.bank_rounds(operand) if is_promoted else -(-lines // WIDTH)
            per_thread = per_thread / bytes_each * rounds * WIDTH
        copied = sum(self.touched(operand, box) for box in self.held_tiles(operand)) if is_promoted else 0
        return per_thread + copied

    def shared_memory(self) -> int:
        return self.case.stages * sum(self.touched(self.op.operands[i], self.first) for i in self.case.promoted)

    def registers(self) -> int:
        """Of one thread: all results, and the inputs of one step of the reduction."""
        thread = self.threads(self.first)[0]
        sizes = self.case.intrinsic or (1,) * len(thread)
        kinds = self.op.kinds
        step = tuple(r if k == "p" else (0, max(s, 1)) for r, k, s in zip(thread, kinds, sizes, strict=True))
        held = sum(self.touched(o, thread if o.is_output else step) for o in self.op.operands)
        return -(-held // (4 * (self.case.subgroup_size if self.case.intrinsic else 1)))

    def intrinsic_use(self) -> float:
        covered = 0
        for workgroup in self.workgroups:
            for box in self.serial(workgroup):
                for tile in self.threads(box):
                    sizes = zip(tile, self.case.intrinsic, strict=True)
                    covered += np.prod([-(-(end - start) // size) * size for (start, end), size in sizes])
        return np.prod(self.op.extents) / covered

    def waves(self, threads: int) -> dict[str, float]:
        """Fill multiprocessors with workgroups until something runs out, wave by wave."""
        subgroups = -(-threads // self.case.subgroup_size)
        slots = subgroups * self.case.subgroup_size
        resident = 0
        while (
            resident < MACHINE.resident_workgroups
            and (resident + 1) * slots <= MACHINE.resident_threads
            and (resident + 1) * slots * self.registers() <= MACHINE.registers
            and (resident + 1) * self.shared_memory() <= MACHINE.shared_bytes
        ):
            resident += 1
        resident = max(resident, 1)
        left, waves, most = len(self.workgroups), 0, np.zeros(MACHINE.cores, int)
        while left:
            begun = min(left, resident * MACHINE.cores)
            most += np.bincount(np.arange(begun) % MACHINE.cores, minlength=MACHINE.cores)
            left, waves = left - begun, waves + 1
        return {
            "threads": threads,
            "warps": subgroups,
            "active_lanes": threads / slots,
            "workgroups_per_core": resident,
            "occupancy": resident * slots / MACHINE.resident_threads,
            "workgroups": len(self.workgroups),
            "waves": waves,
            "wave_use": len(self.workgroups) / (waves * resident * MACHINE.cores),
            "core_use": len(self.workgroups) / (most.max() * MACHINE.cores),
            "shared_memory": self.shared_memory(),
            "of_shared_memory": self.shared_memory() / LIMITS.workgroup_memory_bytes,
            "registers_per_thread": self.registers(),
        }
