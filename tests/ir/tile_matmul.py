# RUN: %PYTHON %s | %filecheck %s
"""One template of a matmul + ReLU read three ways: open script, symbolic loops, and loops of one candidate."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from configured import configured_module
from ops import KINDS

from felix_mlir.schedule import (
    TileLevel,
    configured_functions,
    cpu_limits,
    cpu_templates,
    read_configuration,
    read_dispatch,
)
from felix_mlir.symbolic import Structure, tile, tile_symbolically, tuning_script

module = configured_module(KINDS["matmul"])
function = next(iter(configured_functions(module.operation).values()))
template = cpu_templates(read_dispatch(function), read_configuration(function), cpu_limits(module.operation))[0]
configured = str(module)
values = {
    "distribution_d0": 25, "distribution_d1": 48, "cache_d0": 25, "cache_d1": 48, "cache_d2": 36,
    "vector_d0": 5, "vector_d1": 16, "vector_d2": 4,
}  # fmt: skip
assert template.violations(values) == []
print("// script\n" + tuning_script(template, {"vector_d1": 16}))
whole = Structure(idle=frozenset({TileLevel.CACHE_REDUCTION}))
print("// symbolic, reduction whole\n", tile_symbolically(template, configured, whole))
print("// concrete, reduction split\n", tile(template, configured, values).operation.get_asm(use_local_scope=True))

# CHECK-LABEL: // script
# CHECK: %cache_d0 = transform.tune.knob<"cache_d0"> options = [1 : i64, 2 : i64,
# CHECK: %vector_d1 = transform.param.constant 16 : i64 -> !transform.param<i64>
# CHECK: // distribution: linalg.generic 2 over d0, d1
# CHECK: transform.structured.fuse %{{.*}} tile_sizes [%distribution_d0, %distribution_d1]
# CHECK: transform.annotate %{{.*}} "felix.level"
# CHECK: // cache_parallel: linalg.generic 2 over d0, d1
# CHECK: // cache_reduction: linalg.matmul 1 over d2
# CHECK: transform.structured.tile_using_for %{{.*}} tile_sizes [0, 0, %cache_d2]
# CHECK: // vector_common_parallel: linalg.matmul 1 over d0, d1
# CHECK: // vector_reduction: linalg.matmul 1 over d2
# CHECK: // vector_common_parallel: linalg.generic 2 over d0, d1

# CHECK-LABEL: // symbolic, reduction whole
# CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0)[s0] -> (-d0 + 50, s0)>
# CHECK-DAG: %[[DIST0:.*]] = call @distribution_d0() {felix.knob = "distribution_d0"}
# CHECK-DAG: %[[CACHE0:.*]] = call @cache_d0()
# CHECK-DAG: %[[VEC2:.*]] = call @vector_d2()
# CHECK: scf.forall (%[[I:.*]], %{{.*}}) = (0, 0) to (50, 96) step (%[[DIST0]], %{{.*}})
# CHECK: %[[TILE:.*]] = affine.min #[[ROWS]](%[[I]])[%[[DIST0]]]
# CHECK: scf.forall {{.*}} to (%[[TILE]], %{{.*}}) step (%[[CACHE0]], %{{.*}})
# CHECK: scf.forall
# CHECK: linalg.fill
# CHECK: scf.for {{.*}} step %[[VEC2]] iter_args
# CHECK: linalg.matmul
# CHECK: felix.anchor = 1 : i64, felix.level = "vector_reduction", felix.loops = [2]
# CHECK: linalg.generic
# CHECK: felix.level = "vector_common_parallel"
# CHECK: felix.level = "cache_parallel"
# CHECK: felix.level = "distribution"

# CHECK-LABEL: // concrete, reduction split
# CHECK: scf.forall {{.*}} = (0, 0) to (50, 96) step (25, 48)
# CHECK: linalg.fill {{.*}} outs(%{{.*}} : tensor<25x48xf32>)
# CHECK: scf.for %{{.*}} = %c0 to %c72 step %c36
# CHECK: scf.forall {{.*}} = (0, 0) to (25, 48) step (5, 16)
# CHECK: scf.for %{{.*}} = %c0 to %c36 step %c4
# CHECK: linalg.matmul {{.*}} ins(%{{.*}} : tensor<5x4xf32>, tensor<4x16xf32>) outs(%{{.*}} : tensor<5x16xf32>)
# CHECK: scf.for %{{.*}} = %c0 to %c25 step %c5
# CHECK: scf.for %{{.*}} = %c0 to %c48 step %c16
# CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<5x16xf32>)
