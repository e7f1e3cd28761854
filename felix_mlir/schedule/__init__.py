"""From a configured dispatch to its candidates: loops, knobs, constraints, configurations.

Contract: a `ScheduleTemplate` maps knob values (name → tile size) to a `Configuration`; a legal candidate is one
`violations` finds nothing against. Everything but reading and writing attributes is plain data.
"""

from __future__ import annotations

from felix_mlir.schedule.configuration import (
    Configuration,
    ConfigurationError,
    TileLevel,
    read_configuration,
    with_configuration,
    write_configuration,
)
from felix_mlir.schedule.cpu import CpuLimits, cpu_templates
from felix_mlir.schedule.dispatch import (
    ComputeOp,
    Dispatch,
    UnsupportedDispatchError,
    configured_functions,
    read_dispatch,
)
from felix_mlir.schedule.space import LegalSpace, ListedSpace, Space
from felix_mlir.schedule.template import Constraint, Knob, KnobValues, ScheduleTemplate

__all__ = [
    "ComputeOp",
    "Configuration",
    "ConfigurationError",
    "Constraint",
    "CpuLimits",
    "Dispatch",
    "Knob",
    "KnobValues",
    "LegalSpace",
    "ListedSpace",
    "ScheduleTemplate",
    "Space",
    "TileLevel",
    "UnsupportedDispatchError",
    "configured_functions",
    "cpu_templates",
    "read_configuration",
    "read_dispatch",
    "with_configuration",
    "write_configuration",
]
