"""Any dialect iree-compile takes: dispatches are found, and inputs can be made up."""

from __future__ import annotations

import numpy as np
import pytest
from configured import CPU, write_flow

from felix_mlir.tasks import extract_tasks, read_input_types

DIALECTS = {
    "linalg": """
func.func @main(%a: tensor<50x64xf32>, %b: tensor<64x96xf32>, %c: tensor<50x96xf32>) -> tensor<50x96xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<50x64xf32>, tensor<64x96xf32>)
      outs(%c : tensor<50x96xf32>) -> tensor<50x96xf32>
  return %0 : tensor<50x96xf32>
}""",
    "tosa": """
func.func @main(%a: tensor<1x50x64xf32>, %b: tensor<1x64x96xf32>) -> tensor<1x50x96xf32> {
  %z = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = tosa.matmul %a, %b, %z, %z
      : (tensor<1x50x64xf32>, tensor<1x64x96xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x50x96xf32>
  return %0 : tensor<1x50x96xf32>
}""",
    "stablehlo": """
func.func @main(%a: tensor<50x64xf32>, %b: tensor<64x96xf32>) -> tensor<50x96xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<50x64xf32>, tensor<64x96xf32>) -> tensor<50x96xf32>
  return %0 : tensor<50x96xf32>
}""",
    "torch": """
func.func @main(%a: !torch.vtensor<[50,64],f32>, %b: !torch.vtensor<[64,96],f32>) -> !torch.vtensor<[50,96],f32> {
  %0 = torch.aten.mm %a, %b
      : !torch.vtensor<[50,64],f32>, !torch.vtensor<[64,96],f32> -> !torch.vtensor<[50,96],f32>
  return %0 : !torch.vtensor<[50,96],f32>
}""",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_input_dialect_is_understood(dialect, tmp_path):
    flow = write_flow(DIALECTS[dialect], tmp_path)
    types = read_input_types(flow, "main")
    assert [t.shape[-2:] for t in types[:2]] == [(50, 64), (64, 96)]
    assert {t.dtype for t in types} == {np.dtype(np.float32)}
    (task,) = extract_tasks(flow, CPU, tmp_path / "tasks")
    assert (task.kind, task.reason) == ("matmul", "")
