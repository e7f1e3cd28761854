"""Counts what a tiled op does by running its loops: nothing here is computed from a formula of the features.

Tile loops run with their cut-off last steps; inside a region, index sets are numpy arrays that are searched for
distinct elements, runs and lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from nests import LEVELS, Op, Operand, knob_name

CACHES = ("l1", "l2", "l3")
Ranges = tuple[tuple[int, int], ...]


class Interpreter:
    """Runs one op with concrete tile sizes. `machine` has the values of MachineLimits.values()."""

    def __init__(
        self, op: Op, knobs: Mapping[str, int], machine: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.op, self.machine, self.shapes = op, machine, shapes
        self.loops = [
            (loop, level, knobs[knob_name(loop, level)])
            for level in LEVELS
            for loop, own in enumerate(op.levels)
            if level in own
        ]
        self.levels: dict[str, int] = {"dispatch": 0}
        for depth, (_, level, _) in enumerate(self.loops, start=1):
            self.levels[level.value] = depth

    def regions(self, depth: int) -> Iterator[Ranges]:
        """Every region inside the first `depth` loops, in the order it is entered."""
        return (ranges for _, ranges in self.entries(depth))

    def entries(self, depth: int) -> Iterator[tuple[tuple[int, ...], Ranges]]:
        """Every region with the trip number of each loop around it."""

        def walk(trips: tuple[int, ...], ranges: Ranges) -> Iterator[tuple[tuple[int, ...], Ranges]]:
            if len(trips) == depth:
                yield trips, ranges
                return
            loop, _, step = self.loops[len(trips)]
            start, stop = ranges[loop]
            for trip, first in enumerate(range(start, stop, step)):
                inner = (first, min(first + step, stop))
                yield from walk((*trips, trip), (*ranges[:loop], inner, *ranges[loop + 1 :]))

        yield from walk((), tuple((0, extent) for extent in self.op.extents))

    @staticmethod
    def points(ranges: Ranges) -> np.ndarray:
        """All iterations of a region in order, [n, loops]."""
        axes = [np.arange(start, stop) for start, stop in ranges]
        grid = np.meshgrid(*axes, indexing="ij")
        return np.stack([axis.ravel() for axis in grid], axis=1) if axes else np.zeros((1, 0), dtype=int)

    def indices(self, operand: Operand, points: np.ndarray) -> np.ndarray:
        """What the points touch, [n, buffer dimensions]."""
        columns = [
            sum((c * points[:, loop] for loop, c in i.items()), np.zeros(len(points), int)) for i in operand.index
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0), dtype=int)

    def addresses(self, operand: Operand, points: np.ndarray) -> np.ndarray:
        address = np.zeros(len(points), dtype=int)
        for column, size in zip(self.indices(operand, points).T, self.shapes[operand.name], strict=True):
            address = address * size + column
        return address

    def bytes(self, operand: Operand, points: np.ndarray) -> int:
        return len(np.unique(self.addresses(operand, points))) * operand.element_bytes

    def count(self, vector_loop: int) -> dict[str, float]:
        """Count everything; vectors run along `vector_loop`."""
        counts: dict[str, float] = defaultdict(int)
        sets: list[tuple[int, int]] = []
        for level, depth in self.levels.items():
            self._level(counts, level, depth)
            for cache in CACHES:
                counts[f"{level}/of_{cache}"] = counts[f"{level}/working_set"] / self.machine[f"machine_{cache}_bytes"]
            traffic = sum(counts[f"{level}/{o.name}/traffic"] for o in self.op.operands)
            sets.append((counts[f"{level}/working_set"], traffic))
        for cache in CACHES:
            fitting = [traffic for size, traffic in sets if size <= self.machine[f"machine_{cache}_bytes"]]
            counts[f"{cache}/traffic"] = fitting[0] if fitting else sets[-1][1]
        self._leaves(counts, vector_loop)
        self._sequence(counts)
        return dict(counts)

    def _level(self, counts: dict[str, float], level: str, depth: int) -> None:
        loops = self.loops[:depth]
        steps = {loop: step for loop, _, step in loops}
        whole = [steps.get(loop, extent) for loop, extent in enumerate(self.op.extents)]
        seen: dict[int, set[tuple[int, int]]] = defaultdict(set)
        total = int(np.prod(self.op.extents))
        for entry, ranges in enumerate(self.regions(depth)):
            points = self.points(ranges)
            sizes = [stop - start for start, stop in ranges]
            if entry == 0:
                counts |= {f"{level}/l{loop}/size": size for loop, size in enumerate(sizes)}
            if depth:
                counts[f"{level}/tiles"] += 1
                counts[f"{level}/cut_tiles"] += any(sizes[loop] < whole[loop] for loop in steps)
                counts[f"{level}/padding"] += np.prod(whole) / total
                for loop in steps:
                    seen[loop].add(ranges[loop])
            for operand in self.op.operands:
                here = f"{level}/{operand.name}"
                size = self.bytes(operand, points)
                counts[f"{here}/traffic"] += size * (1 + operand.is_output)
                if entry == 0:
                    counts[f"{here}/footprint"] = size
                    counts[f"{here}/reuse"] = len(points) / (size // operand.element_bytes)
                    counts[f"{level}/working_set"] += size
                    self._runs(counts, here, operand, points)
        for loop, ranges_of_loop in seen.items():
            counts[f"{level}/d{loop}/tiles"] = len(ranges_of_loop)
            in_cut = sum(stop - start for start, stop in ranges_of_loop if stop - start < steps[loop])
            counts[f"{level}/l{loop}/cut"] = in_cut / self.op.extents[loop]
        if depth:
            untiled = set(range(len(self.op.extents))) - set(steps)
            counts |= {f"{level}/l{loop}/cut": 0 for loop in untiled}

    def _runs(self, counts: dict[str, float], here: str, operand: Operand, points: np.ndarray) -> None:
        shape = self.shapes[operand.name]
        touched = np.unique(self.indices(operand, points), axis=0)
        # The innermost dimensions that are covered whole form one row with the first that is not.
        inner = len(shape)
        while inner > 1 and len(touched) == len(np.unique(touched[:, : inner - 1], axis=0)) * np.prod(
            shape[inner - 1 :]
        ):
            inner -= 1
        unit = int(np.prod(shape[inner:])) * operand.element_bytes
        line = self.machine["machine_line_bytes"]
        lines, run = 0, 0
        for outer in np.unique(touched[:, : max(inner - 1, 0)], axis=0):
            rows = touched[(touched[:, : max(inner - 1, 0)] == outer).all(axis=1)]
            at = np.unique(rows[:, inner - 1]) if shape else np.zeros(1, dtype=int)
            breaks = [i + 1 for i, gap in enumerate(np.diff(at)) if gap > 1 and gap * unit >= line]
            for group in np.split(at, breaks):
                in_bytes = ((group - group[0])[:, None] * unit + np.arange(unit)).ravel()
                lines += len(np.unique(in_bytes // line))
            if not run:
                gaps = np.flatnonzero(np.diff(at) > 1)
                run = unit * (int(gaps[0]) + 1 if len(gaps) else len(at))
        counts[f"{here}/lines"] = lines
        counts[f"{here}/run"] = run

    def _leaves(self, counts: dict[str, float], vector_loop: int) -> None:
        widest = max(operand.element_bytes for operand in self.op.operands)
        lanes = max(1, self.machine["machine_vector_bytes"] // widest)
        operations = max(1, sum(self.op.operations.values()))
        parallel = [loop for loop, kind in enumerate(self.op.kinds) if kind == "p"]
        vectors = 0
        along = dict.fromkeys(range(len(self.op.extents)), 0)
        for entry, ranges in enumerate(self.regions(len(self.loops))):
            points = self.points(ranges)
            counts["iterations"] += len(points)
            for loop in along:
                along[loop] += len(np.unique(self._chunks(points, ranges, loop, lanes), axis=0))
            for kind, number in self.op.operations.items():
                counts[kind] += number * len(points)
            chunks = self._chunks(points, ranges, vector_loop, lanes)
            vectors += len(np.unique(chunks, axis=0))
            if entry == 0:
                counts["code_size"] = operations * len(np.unique(chunks, axis=0))
                counts["accumulators"] = len(np.unique(chunks[:, parallel], axis=0))
                used = [[loop for loop in parallel if any(loop in i for i in o.index)] for o in self.op.operands]
                counts["registers"] = sum(len(np.unique(chunks[:, loops], axis=0)) for loops in used)
                counts["of_registers"] = counts["registers"] / self.machine["machine_vector_registers"]
        counts["vector_operations"] = operations * vectors
        counts["lane_use"] = counts["iterations"] / (vectors * lanes)
        for loop, number in along.items():
            counts[f"l{loop}/lane_use"] = counts["iterations"] / (number * lanes)

    def _chunks(self, points: np.ndarray, ranges: Sequence[tuple[int, int]], loop: int, lanes: int) -> np.ndarray:
        chunks = points.copy()
        chunks[:, loop] = (chunks[:, loop] - ranges[loop][0]) // lanes
        return chunks

    def _sequence(self, counts: dict[str, float]) -> None:
        leaves = list(self.entries(len(self.loops)))
        order = np.concatenate([self.points(ranges) for _, ranges in leaves])
        # Where every loop stands at each iteration, outermost first: tile loops, then the op's own.
        clock = np.concatenate(
            [np.hstack([np.tile(trips, (len(p := self.points(ranges)), 1)), p - p[0]]) for trips, ranges in leaves]
        )
        for operand in self.op.operands:
            addresses = self.addresses(operand, order)
            elements = len(np.unique(addresses))
            counts[f"{operand.name}/unique"] = elements * operand.element_bytes
            counts[f"{operand.name}/accessed"] = len(order) * operand.element_bytes * (1 + operand.is_output)
            counts[f"{operand.name}/stride"] = abs(int(addresses[1] - addresses[0])) if len(order) > 1 else 0
            # Where windows overlap an element also comes back through its neighbours, which is not what is counted.
            if any(len(index) > 1 for index in operand.index):
                continue
            again = np.flatnonzero(addresses[1:] == addresses[0]) + 1
            distance = int(again[0]) if len(again) else 0
            counts[f"{operand.name}/reuse_iterations"] = distance
            counts[f"{operand.name}/reuse_bytes"] = sum(
                self.bytes(other, order[:distance]) if distance else 0 for other in self.op.operands
            )
            counts[f"{operand.name}/reuse_count"] = 1
            if distance:
                (moved,) = np.flatnonzero(clock[distance] != clock[0])
                before = (clock[:, :moved] == clock[0, :moved]).all(axis=1)
                counts[f"{operand.name}/reuse_count"] = len(np.unique(clock[before, moved]))

    def workgroups(self) -> dict[str, float]:
        """Deal workgroups out to cores, one each a wave."""
        depth = sum(level is LEVELS[0] for _, level, _ in self.loops)
        sizes = [len(self.points(ranges)) for ranges in self.regions(depth)]
        cores = self.machine["machine_cores"]
        waves = [sizes[first : first + cores] for first in range(0, len(sizes), cores)]
        slots = len(waves) * cores
        return {
            "workgroups": len(sizes),
            "waves": len(waves),
            "core_use": len(sizes) / slots,
            "imbalance": max(sizes) / (sum(sizes) / len(sizes)),
        }
