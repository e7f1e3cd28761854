"""The ops a device is checked on: each one as torch computes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override


@dataclass(frozen=True)
class Case:
    """One op on inputs of random numbers: `op` is a name in run_on_gpu.py's OPERATIONS, `tolerance` a relative error.

    An error is max|y - reference| / max|reference| against the same op of torch in a wider type.
    """

    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    tolerance: float


CASES = (
    Case("matmul_f16", "matmul", ((2048, 2048), (2048, 2048)), "float16", 5e-3),
    Case("matmul_f32", "matmul", ((2048, 2048), (2048, 2048)), "float32", 1e-5),
    Case("matmul_f16_skinny", "matmul", ((64, 4096), (4096, 11008)), "float16", 5e-3),
    Case("conv_f16", "conv2d", ((8, 128, 28, 28), (128, 128, 3, 3)), "float16", 5e-3),
    Case("conv_f32", "conv2d", ((1, 64, 56, 56), (64, 64, 3, 3)), "float32", 1e-5),
    Case("attention_scores_f16", "batch_matmul", ((96, 512, 64), (96, 64, 512)), "float16", 5e-3),
    Case("attention_values_f16", "batch_matmul", ((96, 512, 512), (96, 512, 64)), "float16", 5e-3),
    Case("attention_scores_f32", "batch_matmul", ((12, 197, 64), (12, 64, 197)), "float32", 1e-5),
    Case("softmax_f16", "softmax", ((96, 512, 512),), "float16", 5e-3),
    Case("softmax_f32", "softmax", ((12, 197, 197),), "float32", 1e-5),
)


class Operation(nn.Module):
    """A function of tensors as a module, which is what models are made of."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self._function = function

    @override
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self._function(*inputs)  # type: ignore[operator]
