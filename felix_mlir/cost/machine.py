"""The machine a schedule runs on: what it says of itself, and how fast it was measured to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from felix_mlir.cost.gpu_machine import GpuMachine, read_gpu_machine
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


AnyMachine = Machine | GpuMachine


def read_machine(target: Target) -> AnyMachine:
    """Read and, the first time, measure the processor at hand, or look up the GPU that the target names.

    Raises WorkError, RequestError and MachineError.
    """
    if target.device == "cuda":
        return read_gpu_machine(target.name.removeprefix("cuda:"))
    return Machine(read_host(target.cores), read_rates(target))
