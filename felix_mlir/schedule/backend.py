"""What is different from one compiler backend to the next: limits, configurations and templates of a dispatch."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from felix_mlir.schedule.configuration import Configuration, read_configuration
from felix_mlir.schedule.cpu import CpuLimits, cpu_templates
from felix_mlir.schedule.dispatch import Dispatch, UnsupportedDispatchError, is_for_gpu
from felix_mlir.schedule.gpu_configuration import GpuConfiguration, read_gpu_configuration
from felix_mlir.schedule.gpu_intrinsic import intrinsic_templates
from felix_mlir.schedule.gpu_limits import GpuLimits, gpu_limits, is_gpu_module
from felix_mlir.schedule.gpu_reduction import reduction_templates
from felix_mlir.schedule.gpu_simt import simt_templates
from felix_mlir.schedule.limits import cpu_limits
from felix_mlir.schedule.template import ScheduleTemplate

Limits = CpuLimits | GpuLimits


def limits_of(module: ir.Operation) -> Limits:
    """Read the machine's limits from the executable target of a configured module."""
    return gpu_limits(module) if is_gpu_module(module) else cpu_limits(module)


def default_of(function: ir.Operation) -> Configuration:
    """Read the configuration a dispatch function carries.

    Raises ConfigurationError for one that is not made of static sizes.
    """
    return read_gpu_configuration(function) if is_for_gpu(function) else read_configuration(function)


def templates_of(
    dispatch: Dispatch, default: Configuration, limits: Limits, constraints: ir.Operation | None = None
) -> Sequence[ScheduleTemplate]:
    """Return the templates that fit a dispatch; the sizes of `default`, the compiler's choice, are among the options.

    `constraints` is the module with the compiler's own rules for it, on a GPU that has matrix intrinsics. Raises
    UnsupportedDispatchError when no template fits.
    """
    if isinstance(limits, CpuLimits):
        return cpu_templates(dispatch, default, limits)
    assert isinstance(default, GpuConfiguration)
    found = intrinsic_templates(dispatch, constraints, limits) if constraints is not None else []
    found = found or simt_templates(dispatch, default, limits) or reduction_templates(dispatch, default, limits)
    if not found:
        if default.intrinsic:
            raise UnsupportedDispatchError(f"the compiler states no rules for its use of {default.intrinsic}")
        raise UnsupportedDispatchError(f"no template for the pipeline {dispatch.pipeline}")
    return found
