"""What a GPU can do at most: figures of its datasheet, by architecture, for a machine that need not be at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from felix_mlir.cost.rates import ELEMENT_TYPES, OVERRIDE, positive, table
from felix_mlir.errors import RequestError
from felix_mlir.features import GpuMachineLimits

RATES_FILE = Path(__file__).with_name("gpu_rates.json")
# What a matrix intrinsic multiplies and what it accumulates; bf16 is as fast as f16.
MATRIX_TYPES = ("f16_f16", "f16_f32", "f32_f32", "i8_i32")


@dataclass(frozen=True)
class GpuRates:
    """Peak rates of a whole GPU.

    `flops` are FLOP/s of scalar code for each of ELEMENT_TYPES, a multiplication and an addition counting as two,
    `matrix_flops` those of matrix intrinsics for MATRIX_TYPES. `on_chip_bytes_s` is what all multiprocessors' own
    memories deliver, `l2_bytes_s` and `memory_bytes_s` what the shared cache and memory do, `l2_latency_s` and
    `memory_latency_s` how long one access takes. A multiprocessor needs `latency_warps` independent instructions of
    warps to be busy. `launch_s` is the seconds an empty dispatch costs.
    """

    flops: Mapping[str, float]
    matrix_flops: Mapping[str, float]
    on_chip_bytes_s: float
    l2_bytes_s: float
    memory_bytes_s: float
    l2_latency_s: float
    memory_latency_s: float
    latency_warps: float
    launch_s: float


@dataclass(frozen=True)
class GpuMachine:
    """`limits` are sizes and counts, `rates` operations and bytes per second.

    What the target attribute says of a workgroup (threads, shared memory) is in the templates' `GpuLimits`.
    """

    limits: GpuMachineLimits
    rates: GpuRates

    def with_vectors_of(self, vector_bytes: int) -> GpuMachine:
        """The machine as a compiler sees it whose threads load `vector_bytes` at once."""
        return replace(self, limits=replace(self.limits, vector_bytes=vector_bytes))


def read_gpu_machine(arch: str) -> GpuMachine:
    """Return the machine that an architecture's entry in `RATES_FILE` stands for.

    A JSON file of the form of one entry that FELIX_MLIR_RATES names goes before. Raises RequestError for an unknown
    architecture and for a file that cannot be used.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        try:
            return _machine(json.loads(Path(override).read_text()))
        except (OSError, ValueError) as error:
            raise RequestError(f"{OVERRIDE} names {override}, which holds no rates of a GPU: {error}") from error
    known = json.loads(RATES_FILE.read_text())
    if arch not in known:
        raise RequestError(f"there are no rates for {arch}: {OVERRIDE} can name a file of them")
    return _machine(known[arch])


def _machine(entry: Any) -> GpuMachine:
    parts = table(entry, "the entry")
    limits, rates = (table(parts.get(name), f"'{name}'") for name in ("limits", "rates"))
    sizes = {field.name: int(positive(limits, field.name)) for field in fields(GpuMachineLimits)}
    flops = _by_type(rates, "flops", ELEMENT_TYPES)
    matrix_flops = _by_type(rates, "matrix_flops", MATRIX_TYPES)
    scalars = [field.name for field in fields(GpuRates) if field.name not in ("flops", "matrix_flops")]
    others = {name: positive(rates, name) for name in scalars}
    return GpuMachine(GpuMachineLimits(**sizes), GpuRates(flops=flops, matrix_flops=matrix_flops, **others))


def _by_type(rates: Mapping[str, Any], name: str, types: Sequence[str]) -> dict[str, float]:
    given = table(rates.get(name), f"'{name}'")
    return {element: positive(given, element) for element in types}
