"""The cost model as a run uses it: one for all tasks, adapted to everything measured so far."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from felix_mlir.cost.encoder import ScheduleEncoder
from felix_mlir.cost.inputs import NestInputs
from felix_mlir.cost.machine import AnyMachine
from felix_mlir.cost.model import AdaptedModel, CostModel
from felix_mlir.schedule import ScheduleTemplate

# What was measured on other ops says something of this machine, but less than what was measured on the op itself.
_OTHER_TASK = 0.1


class OnlineModel:
    """Adapts `model` to the measurements of a run; `machine` is where they are made."""

    def __init__(self, model: CostModel, machine: AnyMachine) -> None:
        self.model = model
        self.machine = machine
        self._measured: dict[str, list[tuple[NestInputs, Tensor]]] = {}
        self._encoders: dict[int, ScheduleEncoder] = {}

    def encoder(self, template: ScheduleTemplate, configured: Path, vector_bytes: int) -> ScheduleEncoder:
        """Return the encoder of a template, always the same one: what it has derived costs seconds.

        `configured` is the program it schedules, for vector registers of `vector_bytes`.
        """
        key = id(template)  # An encoder holds its template, so that the number stays its own.
        if key not in self._encoders:
            machine = self.machine.with_vectors_of(vector_bytes)
            self._encoders[key] = ScheduleEncoder(template, configured, machine)
        return self._encoders[key]

    def observe(self, task: str, inputs: NestInputs, log_latency: Tensor) -> None:
        """Take in measured candidates of a task: `log_latency` [n], the log of seconds per launch."""
        self._measured.setdefault(task, []).append((inputs, log_latency))

    def adapted(self, task: str) -> AdaptedModel:
        """Return the model as the measurements so far make it, those of `task` counting most."""
        # In an order that does not depend on which task came first.
        found = [(name, *batch) for name in sorted(self._measured) for batch in self._measured[name]]
        weights = [torch.full_like(y, 1.0 if name == task else _OTHER_TASK) for name, _, y in found]
        latencies = [y for _, _, y in found]
        return AdaptedModel(
            self.model,
            [inputs for _, inputs, _ in found],
            torch.cat(latencies) if latencies else torch.zeros(0),
            torch.cat(weights) if weights else torch.zeros(0),
        )
