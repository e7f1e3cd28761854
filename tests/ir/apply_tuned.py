# RUN: %PYTHON %s pass %t | %filecheck %s
# RUN: %PYTHON %s driver %t | %filecheck %s
"""A tuned configuration reaches its dispatch and no other, through a PassManager and through felix-iree-compile."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from configured import CPU, configured_module
from iree.compiler.passmanager import PassManager

from felix_mlir.apply import DEFAULT, with_tasks
from felix_mlir.passes import TunedTask, add_apply_tuned, add_extract_tasks
from felix_mlir.passes.tuned import write_tuned

MODEL = """
func.func @main(%a: tensor<64x32xf32>, %b: tensor<32x48xf32>, %c: tensor<48x80xf32>) -> tensor<64x80xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<64x48xf32>
  %e1 = tensor.empty() : tensor<64x80xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x48xf32>) -> tensor<64x48xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x80xf32>) -> tensor<64x80xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<64x32xf32>, tensor<32x48xf32>) outs(%f0 : tensor<64x48xf32>)
    -> tensor<64x48xf32>
  %1 = linalg.matmul ins(%0, %c : tensor<64x48xf32>, tensor<48x80xf32>) outs(%f1 : tensor<64x80xf32>)
    -> tensor<64x80xf32>
  return %1 : tensor<64x80xf32>
}
"""
way, place = sys.argv[1], Path(sys.argv[2])
place.mkdir(parents=True, exist_ok=True)


def run(module, add) -> None:
    with module.context:
        manager = PassManager("builtin.module")
        add(manager)
        manager.run(module.operation)


module = configured_module(MODEL)
found = []
run(module, lambda pm: add_extract_tasks(pm, found.append))
second = next(task for task in found if "tensor<64x80xf32>" in task.form)
fill = "#iree_cpu.lowering_config<vector_common_parallel = [4, 16]>"
root = (
    "#iree_cpu.lowering_config<distribution = [16, 40, 0], vector_common_parallel = [4, 16, 0], "
    "vector_reduction = [0, 0, 8]>"
)
attributes = replace(second.attributes, lowering_configs=(fill, root))
tuned = with_tasks("model.mlir", CPU, DEFAULT, [TunedTask("second", second.form, attributes)])
if way == "pass":
    run(module, lambda pm: add_apply_tuned(pm, tuned))
    print(module.operation.get_asm(use_local_scope=True))
else:
    (source := place / "model.mlir").write_text(MODEL)
    write_tuned(tuned, place / "configurations.mlir")
    command = ["felix-iree-compile", source, f"--felix-tuned={place}", "--compile-to=executable-configurations"]
    subprocess.run([Path(sys.executable).parent / command[0], *command[1:]], check=True)

# The first matmul keeps what the compiler chose.
# CHECK: hal.executable private @main_dispatch_0
# CHECK-NOT: distribution = [16, 40, 0]
# CHECK: hal.executable private @main_dispatch_1
# CHECK: linalg.fill
# CHECK-SAME: #iree_cpu.lowering_config<vector_common_parallel = [4, 16]>
# CHECK: linalg.matmul
# CHECK-SAME: distribution = [16, 40, 0], vector_common_parallel = [4, 16, 0], vector_reduction = [0, 0, 8]>
