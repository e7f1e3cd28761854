"""Making a cost model of measured tables, before any run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from felix_mlir.cost.fit import Measured, Schedule, fit
from felix_mlir.cost.inputs import concatenate
from felix_mlir.cost.model import CostModel
from felix_mlir.cost.network import Ensemble

TRAINING = Schedule(steps=500, rate=2e-3, tasks=8, points=64)


def train(
    tables: Sequence[Measured],
    seed: int = 0,
    card: dict[str, Any] | None = None,
    schedule: Schedule = TRAINING,
) -> CostModel:
    """Train on the candidates of all `tables`; the same arguments give the same model.

    `card` is what to say of the data beside the tasks' ids.
    """
    network = Ensemble(seed)
    network.fit_scales(concatenate([table.inputs for table in tables]))
    fit(network, tables, schedule, seed)
    products = []
    with torch.no_grad():
        for table in tables:
            basis = network.basis(table.inputs)
            products.append(basis.transpose(1, 2) @ basis / len(table.log_latency))
    gram = torch.stack(products).mean(dim=0)
    return CostModel(network, gram, {**(card or {}), "tasks": sorted({table.task for table in tables})})
