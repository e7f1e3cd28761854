"""The machine a schedule runs on: what it says of itself, and how fast it was measured to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from felix_mlir.cost.rates import MachineRates, read_rates
from felix_mlir.features import MachineLimits, read_host
from felix_mlir.target import Target


@dataclass(frozen=True)
class Machine:
    """`limits` are sizes and counts, `rates` operations and bytes per second."""

    limits: MachineLimits
    rates: MachineRates

    def with_vectors_of(self, vector_bytes: int) -> Machine:
        """The machine as a compiler sees it that uses registers of `vector_bytes`."""
        return replace(self, limits=replace(self.limits, vector_bytes=vector_bytes))


def read_machine(target: Target) -> Machine:
    """Read and, the first time, measure the machine at hand; raises WorkError, RequestError and MachineError."""
    return Machine(read_host(target.cores), read_rates(target))
