"""The features of a template's nest, whichever kind of machine it is for."""

from __future__ import annotations

from felix_mlir.features.derive import derive_cpu_features
from felix_mlir.features.feature import Feature
from felix_mlir.features.gpu import derive_gpu_features
from felix_mlir.schedule import GpuTemplate, ScheduleTemplate
from felix_mlir.symbolic.nest import LoopNest


def derive_features(nest: LoopNest, template: ScheduleTemplate) -> list[Feature]:
    """Return the features of a nest that `template` schedules; raises UnsupportedNestError."""
    return derive_gpu_features(nest, template) if isinstance(template, GpuTemplate) else derive_cpu_features(nest)
