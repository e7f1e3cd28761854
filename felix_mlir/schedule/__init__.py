"""From a configured dispatch to its candidates: loops, knobs, constraints, configurations.

Contract: a `ScheduleTemplate` maps knob values (name → tile size) to a `Configuration`; a legal candidate is one
`violations` finds nothing against. Everything but reading and writing attributes is plain data.
"""

from __future__ import annotations

from felix_mlir.schedule.backend import Limits, default_of, limits_of, templates_of
from felix_mlir.schedule.configuration import (
    Configuration,
    ConfigurationAttributes,
    ConfigurationError,
    GpuTileLevel,
    Level,
    TileLevel,
    read_attributes,
    read_configuration,
    with_configuration,
    write_attributes,
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
from felix_mlir.schedule.gpu_configuration import GpuConfiguration
from felix_mlir.schedule.gpu_limits import GpuLimits, gpu_limits
from felix_mlir.schedule.gpu_template import GpuTemplate
from felix_mlir.schedule.limits import cpu_limits
from felix_mlir.schedule.space import LegalSpace, ListedSpace, Space
from felix_mlir.schedule.template import Constraint, Knob, KnobValues, ScheduleTemplate

__all__ = [
    "ComputeOp",
    "Configuration",
    "ConfigurationAttributes",
    "ConfigurationError",
    "Constraint",
    "CpuLimits",
    "Dispatch",
    "GpuConfiguration",
    "GpuLimits",
    "GpuTemplate",
    "GpuTileLevel",
    "Knob",
    "KnobValues",
    "LegalSpace",
    "Level",
    "Limits",
    "ListedSpace",
    "ScheduleTemplate",
    "Space",
    "TileLevel",
    "UnsupportedDispatchError",
    "configured_functions",
    "cpu_limits",
    "cpu_templates",
    "default_of",
    "gpu_limits",
    "limits_of",
    "read_attributes",
    "read_configuration",
    "read_dispatch",
    "templates_of",
    "with_configuration",
    "write_attributes",
    "write_configuration",
]
