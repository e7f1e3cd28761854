"""How long a schedule takes, predicted: an analytic bound times what an ensemble of small networks has learned.

Contract: `ScheduleEncoder` turns candidates of one template into `NestInputs` (exactly at integers, differentiably in
between); `OnlineModel` adapts a `CostModel` to what a run measures and predicts log seconds per launch;
`training.train` makes a model of measured tables. The bound alone ranks schedules with no data.
"""

from __future__ import annotations

from felix_mlir.cost.encoder import NO_FEATURES, ScheduleEncoder
from felix_mlir.cost.gpu_machine import GpuMachine
from felix_mlir.cost.inputs import NestInputs
from felix_mlir.cost.machine import Machine, read_machine
from felix_mlir.cost.model import AdaptedModel, CostModel
from felix_mlir.cost.online import OnlineModel
from felix_mlir.cost.rates import MachineRates

__all__ = [
    "NO_FEATURES",
    "AdaptedModel",
    "CostModel",
    "GpuMachine",
    "Machine",
    "MachineRates",
    "NestInputs",
    "OnlineModel",
    "ScheduleEncoder",
    "read_machine",
]
