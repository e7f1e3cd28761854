"""Every op kind, one small MLIR module each, for tests that need a dispatch of that kind."""

from __future__ import annotations

from felix_mlir.dataset.ops import (
    ADD,
    biased_exp,
    centred_rows,
    column_sums,
    conv2d_nchw,
    generic,
    matmul,
    matmul_transposed,
    named,
    row_sums,
    softmax,
    transpose,
    window,
)


def strided_1x1(channels_in: int, channels_out: int) -> str:
    """A projection from 56x56 to 28x28, which the compiler's default code computes without vectors."""
    shapes = [(1, channels_in, 56, 56), (channels_out, channels_in, 1, 1)]
    return named("conv_2d_nchw_fchw", shapes, (1, channels_out, 28, 28), window(2, 2))


# The inside of a padded buffer is copied by an op on buffers.
PADDED = """
func.func @main(%x: tensor<48x28x50xf32>) -> tensor<48x30x53xf32> {
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %x low[0, 1, 1] high[0, 1, 2] {
  ^bb0(%i: index, %j: index, %k: index):
    tensor.yield %zero : f32
  } : tensor<48x28x50xf32> to tensor<48x30x53xf32>
  return %padded : tensor<48x30x53xf32>
}
"""
SOFTMAX = softmax(12, 50, 50)
LAYER_NORM = centred_rows(50, 768)

# Every kind of root op the CPU templates claim to cover.
KINDS: dict[str, str] = {
    "matmul": matmul(50, 96, 72, epilogue=True),
    "matmul_column": matmul(1, 1, 4096),
    "matmul_wide": matmul(64, 768, 256),
    "batch_matmul": named("batch_matmul", [(12, 50, 64), (12, 64, 50)], (12, 50, 50)),
    "matvec": named("matvec", [(512, 300), (300,)], (512,)),
    "vecmat": named("vecmat", [(300,), (300, 512)], (512,)),
    "matmul_transposed": matmul_transposed(50, 96, 64),
    "conv1d_ncw": named("conv_1d_ncw_fcw", [(1, 16, 66), (32, 16, 3)], (1, 32, 64), window(1)),
    "conv1d_nwc": named("conv_1d_nwc_wcf", [(1, 66, 16), (3, 16, 32)], (1, 64, 32), window(1)),
    "conv2d_nchw": conv2d_nchw(30, 16, 32, 3, epilogue=True),
    "conv2d_nhwc": named("conv_2d_nhwc_hwcf", [(1, 30, 30, 16), (3, 3, 16, 32)], (1, 28, 28, 32), window(2)),
    "conv2d_nhwc_strided": named(
        "conv_2d_nhwc_hwcf", [(1, 57, 57, 16), (3, 3, 16, 24)], (1, 28, 28, 24), window(2, 2), epilogue=True
    ),
    "conv2d_nchw_dilated": named(
        "conv_2d_nchw_fchw", [(1, 8, 32, 32), (16, 8, 3, 3)], (1, 16, 28, 28), window(2, 1, 2)
    ),
    "conv2d_1x1": conv2d_nchw(28, 64, 96, 1),
    "conv3d_ncdhw": named("conv_3d_ncdhw_fcdhw", [(1, 8, 6, 18, 18), (16, 8, 3, 3, 3)], (1, 16, 4, 16, 16), window(3)),
    "conv3d_ndhwc": named("conv_3d_ndhwc_dhwcf", [(1, 6, 18, 18, 8), (3, 3, 3, 8, 16)], (1, 4, 16, 16, 16), window(3)),
    "depthwise_nhwc": named("depthwise_conv_2d_nhwc_hwc", [(1, 30, 30, 48), (3, 3, 48)], (1, 28, 28, 48), window(2)),
    "depthwise_nchw": named("depthwise_conv_2d_nchw_chw", [(1, 48, 30, 30), (48, 3, 3)], (1, 48, 28, 28), window(2)),
    "grouped": named("conv_2d_ngchw_gfchw", [(1, 4, 8, 30, 30), (4, 16, 8, 3, 3)], (1, 4, 16, 28, 28), window(2)),
    "pool_nhwc_max": named(
        "pooling_nhwc_max", [(1, 57, 57, 32), (3, 3)], (1, 28, 28, 32), window(2, 2), init="-3.0e38"
    ),
    "pool_nchw_sum": named("pooling_nchw_sum", [(1, 32, 58, 58), (2, 2)], (1, 32, 29, 29), window(2, 2)),
    "reduction": row_sums(100, 197),
    "reduction_outer": column_sums(197, 100),
    "reduction_full": generic("full", ["d0, d1", ""], "rr", [(100, 197)], (), ADD),
    "softmax": SOFTMAX,
    "layer_norm": LAYER_NORM,
    "elementwise": biased_exp(197, 1000),
    "transpose": transpose(197, 100),
    "copy_on_buffers": PADDED,
    "matmul_f16": matmul(64, 96, 128, element="f16"),
}

# A product added to INIT, which whoever uses it replaces by a number.
ACCUMULATING_MATMUL = """
func.func @main(%a: tensor<32x32xf32>, %b: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %init = arith.constant dense<INIT> : tensor<32x32xf32>
  %c = linalg.matmul ins(%a, %b : tensor<32x32xf32>, tensor<32x32xf32>)
                     outs(%init : tensor<32x32xf32>) -> tensor<32x32xf32>
  return %c : tensor<32x32xf32>
}
"""
