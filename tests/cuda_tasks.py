"""Tasks of single ops compiled for CUDA, which takes no GPU."""

from __future__ import annotations

import tempfile
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
from configured import write_flow
from ops import KINDS

from felix_mlir.schedule import GpuTemplate, LegalSpace
from felix_mlir.target import parse_target
from felix_mlir.tasks import Task, extract_tasks

CUDA = parse_target("cuda:sm_80")
# Operands of 16 bits, results of 32: what a matrix intrinsic takes and gives.
_NARROW = """
func.func @main(%a: tensor<{m}x{k}x{element}>, %b: tensor<{k}x{n}x{element}>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %result = linalg.matmul ins(%a, %b : tensor<{m}x{k}x{element}>, tensor<{k}x{n}x{element}>)
      outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %result : tensor<{m}x{n}xf32>
}}"""
_NARROW_CONV = """
func.func @main(%a: tensor<1x34x34x32xf16>, %b: tensor<3x3x32x64xf16>) -> tensor<1x32x32x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x32x32x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x32x32x64xf32>) -> tensor<1x32x32x64xf32>
  %result = linalg.conv_2d_nhwc_hwcf ins(%a, %b : tensor<1x34x34x32xf16>, tensor<3x3x32x64xf16>)
      outs(%init : tensor<1x32x32x64xf32>) -> tensor<1x32x32x64xf32>
  return %result : tensor<1x32x32x64xf32>
}"""


def narrow_matmul(m: int, n: int, k: int, element: str = "f16") -> str:
    """A matmul of f16 or bf16 operands that sums in f32."""
    return _NARROW.format(m=m, n=n, k=k, element=element)


# There is no template for the pipeline that copies on buffers.
CUDA_KINDS = {
    **{kind: mlir for kind, mlir in KINDS.items() if kind != "copy_on_buffers"},
    "narrow_matmul": narrow_matmul(64, 96, 128),
    "narrow_matmul_odd": narrow_matmul(197, 96, 128),
    "narrow_matmul_bf16": narrow_matmul(128, 64, 64, "bf16"),
    "narrow_conv": _NARROW_CONV,
}


@cache
def cuda_task(mlir: str) -> Task:
    """The task with the most work of a module."""
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    tasks = extract_tasks(write_flow(mlir, folder, CUDA), CUDA, folder / "tasks")
    return max(tasks, key=lambda task: prod(task.iteration_space))


@cache
def _folder() -> str:
    return tempfile.mkdtemp(prefix="cuda-tasks-")


def draw(template: GpuTemplate, count: int, seed: int = 0) -> list[dict[str, int]]:
    return LegalSpace(template).draw(count, np.random.default_rng(seed))
