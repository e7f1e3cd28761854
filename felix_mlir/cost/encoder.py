"""From the knobs of a template to model inputs: one compiled feature program per loop structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from felix_mlir.cost.gpu_bound import GpuBound
from felix_mlir.cost.inputs import NestInputs, concatenate, nest_inputs
from felix_mlir.cost.layout import Layout
from felix_mlir.cost.machine import AnyMachine
from felix_mlir.features import Program, UnsupportedExpressionError, UnsupportedNestError, derive_features
from felix_mlir.schedule import GpuTemplate, ScheduleTemplate, UnsupportedDispatchError
from felix_mlir.symbolic import ReadError, Structure, TilingError, read_nest, structure_of, tile_symbolically

# What deriving and compiling features raises where there are none.
NO_FEATURES = (UnsupportedDispatchError, TilingError, ReadError, UnsupportedNestError, UnsupportedExpressionError)


@dataclass(frozen=True)
class _Compiled:
    program: Program
    layout: Layout
    gpu: GpuBound | None


class ScheduleEncoder:
    """Encodes candidates of one template; `configured` is the task's program at executable-configurations.

    A GPU template needs a `GpuMachine`, any other a `Machine`.

    The nest of a structure is derived and compiled when it is first met (about half a second). Raises any of
    NO_FEATURES for a dispatch without features.
    """

    def __init__(self, template: ScheduleTemplate, configured: Path, machine: AnyMachine) -> None:
        self.template = template
        self.machine = machine
        self._configured = configured
        self._knobs = [knob.name for knob in template.knobs]
        self._compiled: dict[Structure, _Compiled] = {}
        # A search asks for the structures of the same points again and again.
        self._structure = cache(lambda point: structure_of(template, dict(zip(self._knobs, point, strict=True))))

    def is_compiled(self, structure: Structure) -> bool:
        """Whether encoding candidates of this structure takes no derivation any more."""
        return structure in self._compiled

    def structures_of(self, points: np.ndarray) -> list[Structure]:
        """The loop structure of each candidate [n, knobs]."""
        return [self._structure(tuple(point)) for point in points.tolist()]

    def grouped(self, points: np.ndarray) -> Iterator[tuple[Structure, np.ndarray]]:
        """Yield each structure among candidates [n, knobs] with its rows, ascending."""
        rows: dict[Structure, list[int]] = {}
        for row, structure in enumerate(self.structures_of(points)):
            rows.setdefault(structure, []).append(row)
        for structure, members in rows.items():
            yield structure, np.array(members)

    def exact(self, points: np.ndarray) -> NestInputs:
        """Encode candidates, integers [n, knobs], n > 0, in their order."""
        parts: list[NestInputs] = []
        order: list[np.ndarray] = []
        for structure, rows in self.grouped(points):
            compiled = self._of(structure)
            values = compiled.program.exact_matrix(points[rows], self.machine.limits.values())
            parts.append(nest_inputs(compiled.layout, torch.from_numpy(values), self.machine, compiled.gpu))
            order.append(rows)
        back = np.argsort(np.concatenate(order), kind="stable")
        whole = concatenate(parts).select(torch.from_numpy(back))
        return NestInputs(*(_single(getattr(whole, field.name)) for field in fields(whole)))

    def features(self, point: np.ndarray) -> dict[str, float]:
        """Return the features of one candidate, [knobs], by name."""
        ((structure, _),) = self.grouped(point[None])
        program = self._of(structure).program
        row = program.exact_matrix(point[None], self.machine.limits.values())[0]
        return dict(zip(program.names, row.tolist(), strict=True))

    def relaxed(self, structure: Structure, points: Tensor, temperature: float) -> NestInputs:
        """Encode positive real points [n, knobs], differentiably, as if their loops had `structure`."""
        compiled = self._of(structure)
        values = compiled.program.relaxed(points, self.machine.limits.values(), temperature=temperature)
        return nest_inputs(compiled.layout, values, self.machine, compiled.gpu)

    def _of(self, structure: Structure) -> _Compiled:
        if structure not in self._compiled:
            nest = read_nest(tile_symbolically(self.template, self._configured, structure), self.template)
            features = derive_features(nest, self.template)
            gpu = GpuBound.of(nest, features, self.template) if isinstance(self.template, GpuTemplate) else None
            program = Program([(feature.name, feature.expr) for feature in features], self._knobs)
            self._compiled[structure] = _Compiled(program, Layout.of(nest, features), gpu)
        return self._compiled[structure]


def _single(values: Tensor) -> Tensor:
    return values.float() if values.is_floating_point() else values
