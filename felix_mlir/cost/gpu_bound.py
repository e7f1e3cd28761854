"""A lower bound on the time each stage takes on a GPU, resource by resource, from its features and peak rates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from felix_mlir.cost.gpu_machine import MATRIX_TYPES, GpuMachine
from felix_mlir.features import Feature, UnsupportedNestError
from felix_mlir.features.derive import unique_names
from felix_mlir.schedule import GpuTemplate
from felix_mlir.symbolic.nest import LoopNest, Stage

STAGE = (
    "iterations",
    "dispatch/working_set",
    "intrinsic_use",
    "accumulators_per_thread",
    "on_chip",
    "global",
    "unique",
    "in_flight",
)
DISPATCH = ("core_use", "active_lanes", "resident", "resident_warps")
# By the bytes of an element read and written.
_MATRIX_TYPES = dict(zip(((2, 2), (2, 4), (4, 4), (1, 4)), MATRIX_TYPES, strict=True))


@dataclass(frozen=True)
class GpuBound:
    """Where the features of the bound are: columns `stage` [stages, len(STAGE)] and `dispatch` [len(DISPATCH)].

    `matrix` has, per stage, the type of the matrix intrinsic that computes it (of MATRIX_TYPES), None for scalar code.
    """

    stage: Tensor
    dispatch: Tensor
    matrix: tuple[str | None, ...]

    @staticmethod
    def of(nest: LoopNest, features: list[Feature], template: GpuTemplate) -> GpuBound:
        """Find what the bound needs among the features derived from a nest."""
        columns = {feature.name: column for column, feature in enumerate(features)}
        stages = [stage for _, stage in nest.stages()]
        return GpuBound(
            stage=torch.tensor([[columns[f"{p}/{q}"] for q in STAGE] for p in unique_names(s.name for s in stages)]),
            dispatch=torch.tensor([columns[f"dispatch/{name}"] for name in DISPATCH]),
            matrix=tuple(_matrix_type(s) if template.intrinsic is not None and s.is_root else None for s in stages),
        )

    def terms(self, values: Tensor, machine: GpuMachine, operations: Tensor, elements: tuple[str, ...]) -> Tensor:
        """Seconds per stage and resource [n, stages, len(inputs.TERMS)], from the features [n, features].

        `operations` [stages] are those of one iteration, `elements` the types stages compute in. On a multiprocessor,
        work is as fast as its share of all (the fullest one has the most to do), the lanes that have work, and the
        instructions that do not wait for each other allow; memory gives what bandwidth and, by Little's law, the bytes
        asked for at a time allow. A dispatch that fits the shared cache finds its operands there.
        """
        rates, limits = machine.rates, machine.limits
        stage = dict(zip(STAGE, values[:, self.stage].unbind(-1), strict=True))
        dispatch = {
            name: column[:, None] for name, column in zip(DISPATCH, values[:, self.dispatch].unbind(-1), strict=True)
        }
        flops = torch.tensor(
            [rates.flops[e] if m is None else rates.matrix_flops[m] for e, m in zip(elements, self.matrix, strict=True)]
        )
        independent = dispatch["resident_warps"] * stage["accumulators_per_thread"]
        issued = (independent / rates.latency_warps).clamp(max=1.0)
        speed = flops * dispatch["core_use"] * dispatch["active_lanes"] * issued * stage["intrinsic_use"]
        asked = (dispatch["resident"] * stage["in_flight"]).clamp(min=1.0)
        whole = stage["dispatch/working_set"].sum(dim=-1, keepdim=True)
        from_memory = stage["unique"] * (whole > limits.l3_bytes)
        seconds = [
            operations.clamp(min=1.0) * stage["iterations"] / speed,
            stage["on_chip"] / (rates.on_chip_bytes_s * dispatch["core_use"]),
            # There is no cache between a multiprocessor's own and the shared one.
            torch.zeros_like(speed),
            stage["global"] * torch.maximum(1 / (rates.l2_bytes_s * dispatch["core_use"]), rates.l2_latency_s / asked),
            from_memory * (rates.memory_latency_s / asked).clamp(min=1 / rates.memory_bytes_s),
        ]
        return torch.stack(seconds, dim=-1)


def _matrix_type(stage: Stage) -> str:
    """What the root op multiplies and accumulates, as `GpuRates.matrix_flops` names it."""
    read = min(a.buffer.element_bytes for a in stage.accesses if not a.writes)
    written = max(a.buffer.element_bytes for a in stage.accesses if a.writes)
    if (name := _MATRIX_TYPES.get((read, written))) is None:
        raise UnsupportedNestError(f"no matrix intrinsic is known from elements of {read} bytes to {written}")
    return name
