"""The ops data is collected on: every kind of root op, with shapes of real models and awkward extents among them."""

from __future__ import annotations

from felix_mlir.dataset.ops import (
    biased_exp,
    centred_rows,
    column_sums,
    conv2d_nchw,
    matmul,
    matmul_transposed,
    named,
    row_sums,
    softmax,
    transpose,
    window,
)

# Ops with hundreds of candidates each, on which searchers are compared. Sizes are such that the slowest schedules take
# tens of milliseconds, not seconds.
SUITE: dict[str, str] = {
    "matmul_50_768_768": matmul(50, 768, 768),
    "conv2d_nchw_28_64_96_3": conv2d_nchw(30, 64, 96, 3),
    "depthwise_nhwc_56_100_3": named(
        "depthwise_conv_2d_nhwc_hwc", [(1, 58, 58, 100), (3, 3, 100)], (1, 56, 56, 100), window(2)
    ),
    "softmax_12_197_197": softmax(12, 197, 197),
    "conv2d_nhwc_28_64_64_3": named("conv_2d_nhwc_hwcf", [(1, 30, 30, 64), (3, 3, 64, 64)], (1, 28, 28, 64), window(2)),
    "batch_matmul_12_50_50_64": named("batch_matmul", [(12, 50, 64), (12, 64, 50)], (12, 50, 50)),
    "conv2d_nchw_56_64_64_1": conv2d_nchw(56, 64, 64, 1),
    "layer_norm_197_768": centred_rows(197, 768),
    "matmul_transposed_100_1000_512": matmul_transposed(100, 1000, 512),
    "depthwise_nchw_28_96_3": named(
        "depthwise_conv_2d_nchw_chw", [(1, 96, 30, 30), (96, 3, 3)], (1, 96, 28, 28), window(2)
    ),
    "elementwise_197_1000": biased_exp(197, 1000),
    "conv2d_nchw_relu_25_32_48_3_s2": conv2d_nchw(51, 32, 48, 3, 2, epilogue=True),
    "matvec_11008_100": named("matvec", [(11008, 100), (100,)], (11008,)),
    "pool_nhwc_max_28_100_3": named(
        "pooling_nhwc_max", [(1, 57, 57, 100), (3, 3)], (1, 28, 28, 100), window(2, 2), init="-3.0e38"
    ),
    "conv3d_ncdhw_4_16_16_8_16": named(
        "conv_3d_ncdhw_fcdhw", [(1, 8, 6, 18, 18), (16, 8, 3, 3, 3)], (1, 16, 4, 16, 16), window(3)
    ),
    "grouped_4_28_8_16_3": named(
        "conv_2d_ngchw_gfchw", [(1, 4, 8, 30, 30), (4, 16, 8, 3, 3)], (1, 4, 16, 28, 28), window(2)
    ),
    "row_sums_1000_197": row_sums(1000, 197),
    "matmul_relu_197_256_1000": matmul(197, 256, 1000, epilogue=True),
    "transpose_1000_197": transpose(1000, 197),
    "conv1d_ncw_100_64_50_3": named("conv_1d_ncw_fcw", [(1, 64, 102), (50, 64, 3)], (1, 50, 100), window(1)),
    "conv2d_nhwc_28_32_64_3_s2": named(
        "conv_2d_nhwc_hwcf", [(1, 57, 57, 32), (3, 3, 32, 64)], (1, 28, 28, 64), window(2, 2)
    ),
    "vecmat_1000_1000": named("vecmat", [(1000,), (1000, 1000)], (1000,)),
    "pool_nchw_sum_50_32_2": named("pooling_nchw_sum", [(1, 32, 100, 100), (2, 2)], (1, 32, 50, 50), window(2, 2)),
    "conv2d_nchw_14_128_100_3": conv2d_nchw(16, 128, 100, 3),
}


def _conv2d_nhwc(size: int, channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> str:
    out = (size - kernel) // stride + 1
    inputs = [(1, size, size, channels_in), (kernel, kernel, channels_in, channels_out)]
    return named("conv_2d_nhwc_hwcf", inputs, (1, out, out, channels_out), window(2, stride))


def _depthwise_nhwc(size: int, channels: int, kernel: int, stride: int = 1) -> str:
    out = (size - kernel) // stride + 1
    inputs = [(1, size, size, channels), (kernel, kernel, channels)]
    return named("depthwise_conv_2d_nhwc_hwc", inputs, (1, out, out, channels), window(2, stride))


def _depthwise_nchw(size: int, channels: int, kernel: int) -> str:
    out = size - kernel + 1
    inputs = [(1, channels, size, size), (channels, kernel, kernel)]
    return named("depthwise_conv_2d_nchw_chw", inputs, (1, channels, out, out), window(2))


def _conv1d_ncw(size: int, channels_in: int, channels_out: int, kernel: int) -> str:
    inputs = [(1, channels_in, size), (channels_out, channels_in, kernel)]
    return named("conv_1d_ncw_fcw", inputs, (1, channels_out, size - kernel + 1), window(1))


def _batch_matmul(batch: int, m: int, n: int, k: int) -> str:
    return named("batch_matmul", [(batch, m, k), (batch, k, n)], (batch, m, n))


# Many shapes with few candidates each: what holds for one shape of a kind is learned from the others. In the order
# they are collected.
VARIETY: dict[str, str] = {
    "conv2d_nchw_14_64_64_3": conv2d_nchw(16, 64, 64, 3),
    "matmul_64_1024_256": matmul(64, 1024, 256),
    "depthwise_nhwc_28_64_3": _depthwise_nhwc(30, 64, 3),
    "conv2d_nchw_28_96_64_1": conv2d_nchw(28, 96, 64, 1),
    "softmax_12_128_128": softmax(12, 128, 128),
    "conv2d_nhwc_14_128_64_3": _conv2d_nhwc(16, 128, 64, 3),
    "batch_matmul_4_128_128_64": _batch_matmul(4, 128, 128, 64),
    "conv2d_nchw_56_32_32_3": conv2d_nchw(58, 32, 32, 3),
    "depthwise_nchw_56_32_3": _depthwise_nchw(58, 32, 3),
    "matmul_transposed_50_768_256": matmul_transposed(50, 768, 256),
    "conv1d_ncw_200_32_64_5": _conv1d_ncw(204, 32, 64, 5),
    "matvec_1000_1000": named("matvec", [(1000, 1000), (1000,)], (1000,)),
    "layer_norm_50_1024": centred_rows(50, 1024),
    "elementwise_512_512": biased_exp(512, 512),
    "pool_nchw_max_28_64_3": named(
        "pooling_nchw_max", [(1, 64, 57, 57), (3, 3)], (1, 64, 28, 28), window(2, 2), init="-3.0e38"
    ),
    "row_sums_197_1000": row_sums(197, 1000),
    "transpose_512_384": transpose(512, 384),
    "conv2d_nchw_14_256_128_1": conv2d_nchw(14, 256, 128, 1),
    "matmul_1000_50_197": matmul(1000, 50, 197),
    "conv2d_nchw_relu_28_32_64_3": conv2d_nchw(30, 32, 64, 3, epilogue=True),
    "depthwise_nhwc_14_384_3": _depthwise_nhwc(16, 384, 3),
    "conv2d_nhwc_28_64_128_1": _conv2d_nhwc(28, 64, 128, 1),
    "conv2d_nhwc_50_16_32_3": _conv2d_nhwc(52, 16, 32, 3),
    "batch_matmul_16_64_64_32": _batch_matmul(16, 64, 64, 32),
    "grouped_2_28_16_32_3": named(
        "conv_2d_ngchw_gfchw", [(1, 2, 16, 30, 30), (2, 32, 16, 3, 3)], (1, 2, 32, 28, 28), window(2)
    ),
    "conv3d_ndhwc_4_14_14_16_16": named(
        "conv_3d_ndhwc_dhwcf", [(1, 6, 16, 16, 16), (3, 3, 3, 16, 16)], (1, 4, 14, 14, 16), window(3)
    ),
    "vecmat_2048_500": named("vecmat", [(2048,), (2048, 500)], (500,)),
    "column_sums_11008_50": column_sums(11008, 50),
    "matmul_512_512_512": matmul(512, 512, 512),
    "conv2d_nchw_28_32_32_5": conv2d_nchw(32, 32, 32, 5),
    "depthwise_nchw_14_200_3": _depthwise_nchw(16, 200, 3),
    "softmax_64_1000": softmax(64, 1000),
    "matmul_relu_128_256_512": matmul(128, 256, 512, epilogue=True),
    "conv2d_nchw_50_32_100_1": conv2d_nchw(50, 32, 100, 1),
    "pool_nhwc_sum_25_64_2": named("pooling_nhwc_sum", [(1, 50, 50, 64), (2, 2)], (1, 25, 25, 64), window(2, 2)),
    "conv1d_nwc_100_64_64_3": named("conv_1d_nwc_wcf", [(1, 102, 64), (3, 64, 64)], (1, 100, 64), window(1)),
    "layer_norm_512_256": centred_rows(512, 256),
    "matmul_f16_100_256_512": matmul(100, 256, 512, element="f16"),
    "conv2d_nchw_dilated_28_16_32_3": named(
        "conv_2d_nchw_fchw", [(1, 16, 32, 32), (32, 16, 3, 3)], (1, 32, 28, 28), window(2, 1, 2)
    ),
    "matmul_50_3072_192": matmul(50, 3072, 192),
    "conv3d_ncdhw_3_14_14_16_16": named(
        "conv_3d_ncdhw_fcdhw", [(1, 16, 5, 16, 16), (16, 16, 3, 3, 3)], (1, 16, 3, 14, 14), window(3)
    ),
    "batch_matmul_12_197_197_32": _batch_matmul(12, 197, 197, 32),
    "depthwise_nhwc_28_192_5_s2": _depthwise_nhwc(59, 192, 5, 2),
    "conv2d_nhwc_28_48_100_3_s2": _conv2d_nhwc(57, 48, 100, 3, 2),
    "matmul_transposed_16_1000_1024": matmul_transposed(16, 1000, 1024),
    "elementwise_50_11008": biased_exp(50, 11008),
    "transpose_2048_50": transpose(2048, 50),
    "matmul_197_384_384": matmul(197, 384, 384),
    "conv2d_nchw_7_256_128_3": conv2d_nchw(9, 256, 128, 3),
    "conv1d_ncw_50_128_100_3": _conv1d_ncw(52, 128, 100, 3),
    "row_sums_64_11008": row_sums(64, 11008),
    "matvec_4096_512": named("matvec", [(4096, 512), (512,)], (4096,)),
    "conv2d_nhwc_28_48_64_3": _conv2d_nhwc(30, 48, 64, 3),
    "depthwise_nchw_28_64_5": _depthwise_nchw(32, 64, 5),
    "softmax_100_50": softmax(100, 50),
    "matmul_16_512_1024": matmul(16, 512, 1024),
}

SUITES = {"main": SUITE, "variety": VARIETY}
