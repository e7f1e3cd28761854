"""From a loop nest to numbers: features as expressions, exact at integer knobs, differentiable in between.

Contract: `derive_cpu_features` and `derive_gpu_features` turn a `LoopNest` into an ordered list of `Feature(name,
unit, expr)`; `Program` compiles named expressions once and evaluates them exactly ([n, knobs] integers in, arrays out)
or relaxed ([batch, knobs] positive reals in, [batch, features] out, with a temperature); `ConstraintProgram` does the
same for a template's constraints (booleans, penalties). Symbols that are not knobs (shapes, `MachineLimits.values()`)
get their values at each call.
"""

from __future__ import annotations

from felix_mlir.features.derive import derive_cpu_features
from felix_mlir.features.feature import Feature
from felix_mlir.features.gpu import derive_gpu_features
from felix_mlir.features.gpu_machine import GpuMachineLimits
from felix_mlir.features.machine import MachineError, MachineLimits, read_host
from felix_mlir.features.of_template import derive_features
from felix_mlir.features.program import ConstraintProgram, Program
from felix_mlir.features.report_pass import DispatchFeatures, feature_report_pass
from felix_mlir.features.tape import UnsupportedExpressionError
from felix_mlir.features.tiling import UnsupportedNestError

__all__ = [
    "ConstraintProgram",
    "DispatchFeatures",
    "Feature",
    "GpuMachineLimits",
    "MachineError",
    "MachineLimits",
    "Program",
    "UnsupportedExpressionError",
    "UnsupportedNestError",
    "derive_cpu_features",
    "derive_features",
    "derive_gpu_features",
    "feature_report_pass",
    "read_host",
]
