"""Shares of the run time count launches as they happen, not as they are written."""

from __future__ import annotations

from configured import CPU, write_flow

from felix_mlir.apply import DEFAULT, build_model, with_tasks
from felix_mlir.tasks import extract_tasks, profile_dispatches

LOOP = """
func.func @main(%a: tensor<128x128xf32>, %b: tensor<256x256xf32>) -> (tensor<128x128xf32>, tensor<256x256xf32>) {
  %zero = arith.constant 0.0 : f32
  %lb = arith.constant 0 : index
  %ub = arith.constant 100 : index
  %step = arith.constant 1 : index
  %e = tensor.empty() : tensor<128x128xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<128x128xf32>) -> tensor<128x128xf32>
  %r = scf.for %k = %lb to %ub step %step iter_args(%x = %a) -> (tensor<128x128xf32>) {
    %m = linalg.matmul ins(%x, %a : tensor<128x128xf32>, tensor<128x128xf32>)
        outs(%i : tensor<128x128xf32>) -> tensor<128x128xf32>
    scf.yield %m : tensor<128x128xf32>
  }
  %e2 = tensor.empty() : tensor<256x256xf32>
  %i2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<256x256xf32>) -> tensor<256x256xf32>
  %s = linalg.matmul ins(%b, %b : tensor<256x256xf32>, tensor<256x256xf32>)
      outs(%i2 : tensor<256x256xf32>) -> tensor<256x256xf32>
  return %r, %s : tensor<128x128xf32>, tensor<256x256xf32>
}"""


def test_a_dispatch_in_a_loop_weighs_what_it_takes(tmp_path):
    flow, module = write_flow(LOOP, tmp_path), tmp_path / "loop.vmfb"
    assert build_model(flow, with_tasks("", CPU, DEFAULT), module, 120).outcome.ok
    inputs = ["--function=main", "--input=128x128xf32=0.001", "--input=256x256xf32=1"]
    profile = profile_dispatches(module, inputs, CPU.device, 0.1)
    tasks = {task.iteration_space: task for task in extract_tasks(flow, CPU, tmp_path / "tasks")}
    small, large = tasks[128, 128, 128], tasks[256, 256, 256]
    assert profile.share(small.exports) > 0.6
    assert profile.share(small.exports) + profile.share(large.exports) <= 1.0
    assert 0 < profile.launch_s(small.exports) < profile.launch_s(large.exports)
