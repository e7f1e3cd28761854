# RUN: %PYTHON %s | %filecheck %s
"""A strided convolution + ReLU: the slices of its input, halo included, follow the knobs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from configured import configured_module
from ops import KINDS

from felix_mlir.schedule import configured_functions, cpu_limits, cpu_templates, read_configuration, read_dispatch
from felix_mlir.symbolic import tile, tile_symbolically, tuning_script

module = configured_module(KINDS["conv2d_nhwc_strided"])
function = next(iter(configured_functions(module.operation).values()))
template = cpu_templates(read_dispatch(function), read_configuration(function), cpu_limits(module.operation))[0]
configured = str(module)
values = {
    "distribution_d1": 14, "distribution_d2": 28, "distribution_d3": 24,
    "vector_d1": 1, "vector_d2": 7, "vector_d3": 12, "vector_d4": 1, "vector_d5": 3, "vector_d6": 8,
}  # fmt: skip
assert template.violations(values) == []
print("// script\n" + tuning_script(template))
print("// symbolic\n", tile_symbolically(template, configured).operation.get_asm(use_local_scope=True))
print("// concrete\n", tile(template, configured, values).operation.get_asm(use_local_scope=True))

# The batch loop has one trip: no level tiles it.
# CHECK-LABEL: // script
# CHECK: // distribution: linalg.generic 2 over d1, d2, d3
# CHECK: transform.structured.fuse %{{.*}} tile_sizes [0, %distribution_d1, %distribution_d2, %distribution_d3]
# CHECK: // vector_common_parallel: linalg.generic 2 over d1, d2, d3
# CHECK: // vector_reduction: linalg.generic 1 over d4, d5, d6
# CHECK: tile_using_for %{{.*}} tile_sizes [0, 0, 0, 0, %vector_d4, %vector_d5, %vector_d6]

# CHECK-LABEL: // symbolic
# CHECK: %[[VEC1:.*]] = call @vector_d1()
# CHECK: %[[DIST1:.*]] = call @distribution_d1()
# CHECK: scf.forall (%[[I:.*]], %{{.*}}, %{{.*}}) = (0, 0, 0) to (28, 28, 24) step (%[[DIST1]], %{{.*}}, %{{.*}})
# CHECK: %[[OUTER:.*]] = affine.min affine_map<(d0)[s0] -> (-d0 + 28, s0)>(%[[I]])[%[[DIST1]]]
# CHECK: scf.forall (%[[J:.*]], %{{.*}}, %{{.*}}) = (0, 0, 0) to (%[[OUTER]], %{{.*}}, %{{.*}}) step (%[[VEC1]],
# CHECK: %[[TILE:.*]] = affine.min affine_map<(d0)[s0, s1] -> (-d0 + s0, s1)>(%[[J]])[%[[OUTER]], %[[VEC1]]]
# CHECK: %[[HALO:.*]] = affine.apply affine_map<(d0) -> (d0 * 2 + 1)>(%[[TILE]])
# CHECK: %[[OFFSET:.*]] = affine.apply affine_map<(d0, d1) -> (d0 * 2 + d1 * 2)>(%[[J]], %[[I]])
# CHECK: tensor.extract_slice %arg0[0, %[[OFFSET]], %{{.*}}, 0] [1, %[[HALO]], %{{.*}}, 16]

# CHECK-LABEL: // concrete
# CHECK: scf.forall {{.*}} = (0, 0, 0) to (28, 28, 24) step (14, 28, 24)
# CHECK: scf.forall {{.*}} = (0, 0, 0) to (14, 28, 24) step (1, 7, 12)
# CHECK: tensor.extract_slice %arg0{{.*}} [1, 3, 15, 16] [1, 1, 1, 1]
# CHECK: linalg.fill {{.*}} tensor<1x1x7x12xf32>
# CHECK: scf.for %{{.*}} = %c0 to %c3 step %c1
# CHECK: scf.for %{{.*}} = %c0 to %c3 step %c3
# CHECK: scf.for %{{.*}} = %c0 to %c16 step %c8
# CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<1x1x15x8xf32>, tensor<1x3x8x12xf32>)
# CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<1x1x7x12xf32>)
