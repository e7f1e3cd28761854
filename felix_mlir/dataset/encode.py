"""Tables as what a cost model is trained on: inputs and log latencies of every candidate that ran."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch

from felix_mlir.cost import Machine, NestInputs, ScheduleEncoder, read_machine
from felix_mlir.cost.fit import Measured
from felix_mlir.cost.inputs import concatenate
from felix_mlir.dataset.resolve import ResolvedTable
from felix_mlir.dataset.table import Table
from felix_mlir.errors import RequestError
from felix_mlir.features import MachineLimits
from felix_mlir.target import parse_target


@dataclass(frozen=True)
class EncodedTable(Measured):
    """The candidates of the table `name` that ran; `kind` is that of its root op."""

    name: str
    kind: str


def table_machine(table: Table) -> Machine:
    """Return the machine a table was measured on: its limits where it says them, with the rates of the machine at hand.

    Raises what `read_machine` raises, and RequestError for a table of a GPU.
    """
    here = read_machine(parse_target(table.target))
    if not isinstance(here, Machine):
        raise RequestError(f"table {table.name} is of {table.target}: only tables of a processor can be encoded")
    if table.machine is None:
        return here
    limits = MachineLimits(**{field.name: int(table.machine[field.name]) for field in fields(MachineLimits)})
    return Machine(limits, here.rates)


def encode(resolved: ResolvedTable, machine: Machine) -> EncodedTable:
    """Encode the rows that ran and that a template can express; raises RequestError when there is none."""
    table, tunable = resolved.table, resolved.tunable
    machine = machine.with_vectors_of(tunable.vector_bytes)
    parts: list[NestInputs] = []
    latencies: list[float] = []
    for template in resolved.templates:
        encoder = ScheduleEncoder(template, tunable.configured, machine)
        points: list[list[int]] = []
        for candidate, row in zip(resolved.candidates, table.rows, strict=True):
            if candidate is not None and candidate.template == template.name and row.latency_s is not None:
                points.append([candidate.values[knob.name] for knob in template.knobs])
                latencies.append(row.latency_s)
        if points:
            parts.append(encoder.exact(np.array(points, dtype=np.int64)))
    if not parts:
        raise RequestError(f"no row of table {table.name} ran and can be expressed here")
    latency = torch.log(torch.tensor(latencies))
    return EncodedTable(resolved.task.id, concatenate(parts), latency, table.name, resolved.task.kind)
