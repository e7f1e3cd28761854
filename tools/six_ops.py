"""Six ops that searchers are compared on live, each with the call of eager torch that does the same.

None of these shapes is in felix_mlir.dataset.suite, which the shipped cost model is trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from felix_mlir.dataset.ops import conv2d_nchw, matmul, named, softmax, window
from felix_mlir.importers import random_inputs

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Op:
    """`mlir` holds a function @main of f32 arrays of `shapes`; `bind` returns the call of eager torch on such arrays.

    The call returns what the function does, in the same layout. Whatever torch would do once for many calls, such as
    laying out weights, `bind` has done.
    """

    mlir: str
    shapes: tuple[tuple[int, ...], ...]
    bind: Callable[..., Call]

    def inputs(self) -> tuple[np.ndarray, ...]:
        """Return the arrays that a tuning run makes up for the same module."""
        return random_inputs([(shape, np.dtype(np.float32)) for shape in self.shapes], seed=0)

    def eager(self, arrays: Sequence[np.ndarray]) -> Call:
        """Return the call of eager torch on `arrays`."""
        return self.bind(*map(torch.from_numpy, arrays))


def _named(op: str, inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...], bind: Callable[..., Call]) -> Op:
    return Op(named(op, inputs, output, window(2) if "conv" in op else ""), inputs, bind)


def _channels_last(x: Tensor, weight: Tensor) -> Call:
    """NHWC images and HWCF filters in torch's order of dimensions: the same memory is what it calls channels_last."""
    images = x.permute(0, 3, 1, 2)
    filters = weight.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return lambda: conv2d(images, filters).permute(0, 2, 3, 1)


SIX_OPS: dict[str, Op] = {
    "matmul_100_768_512": Op(
        matmul(100, 768, 512), ((100, 512), (512, 768)), lambda a, b: lambda: torch.matmul(a, b)
    ),
    "conv2d_nchw_56_64_64_3": Op(
        conv2d_nchw(58, 64, 64, 3), ((1, 64, 58, 58), (64, 64, 3, 3)), lambda x, weight: lambda: conv2d(x, weight)
    ),
    "conv2d_nhwc_14_128_128_3": _named(
        "conv_2d_nhwc_hwcf", ((1, 16, 16, 128), (3, 3, 128, 128)), (1, 14, 14, 128), _channels_last
    ),
    "depthwise_nchw_56_96_3": _named(
        "depthwise_conv_2d_nchw_chw", ((1, 96, 58, 58), (96, 3, 3)), (1, 96, 56, 56),
        lambda x, weight: lambda: conv2d(x, weight[:, None], groups=96),
    ),
    "batch_matmul_12_197_64_197": _named(
        "batch_matmul", ((12, 197, 197), (12, 197, 64)), (12, 197, 64), lambda a, b: lambda: torch.bmm(a, b)
    ),
    "softmax_12_50_1000": Op(softmax(12, 50, 1000), ((12, 50, 1000),), lambda x: lambda: torch.softmax(x, -1)),
}  # fmt: skip
