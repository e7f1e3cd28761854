# RUN: %PYTHON %s | %filecheck %s
"""A candidate's sizes reach every compute op of a matmul + ReLU dispatch, and nothing else changes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from configured import configured_module
from ops import KINDS

from felix_mlir.schedule import (
    configured_functions,
    cpu_limits,
    cpu_templates,
    read_configuration,
    read_dispatch,
    write_configuration,
)

module = configured_module(KINDS["matmul"])
function = next(iter(configured_functions(module.operation).values()))
template = cpu_templates(read_dispatch(function), read_configuration(function), cpu_limits(module.operation))[0]
values = {
    "distribution_d0": 50, "distribution_d1": 48, "cache_d0": 25, "cache_d1": 48, "cache_d2": 36,
    "vector_d0": 5, "vector_d1": 16, "vector_d2": 4,
}  # fmt: skip
assert template.violations(values) == []
write_configuration(function, template.configuration(values))
print(function.get_asm(use_local_scope=True))

# CHECK: translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>
# CHECK: linalg.fill
# CHECK-SAME: #iree_cpu.lowering_config<cache_parallel = [25, 48], vector_common_parallel = [5, 16]>
# CHECK: linalg.matmul
# CHECK-SAME: cache_parallel = [25, 48, 0]
# CHECK-SAME: cache_reduction = [0, 0, 36]
# CHECK-SAME: distribution = [50, 48, 0]
# CHECK-SAME: vector_common_parallel = [5, 16, 0]
# CHECK-SAME: vector_reduction = [0, 0, 4]
# CHECK-SAME: root_op
# CHECK: linalg.generic
# CHECK-SAME: #iree_cpu.lowering_config<cache_parallel = [25, 48], vector_common_parallel = [5, 16]>
