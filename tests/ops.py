"""Small MLIR modules, one op kind each, for tests that need a dispatch of that kind."""

from __future__ import annotations

from collections.abc import Sequence


def tensor(shape: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, [*shape, element]))}>"


def generic(
    name: str,
    maps: Sequence[str],
    kinds: str,
    inputs: Sequence[Sequence[int]],
    output: Sequence[int],
    body: str,
) -> str:
    """A module with one linalg.generic over f32; `kinds` has p or r per loop, `body` yields from %a, %b, ..., %o."""
    loops = ", ".join(f"d{i}" for i in range(len(kinds)))
    affine = ", ".join(f"affine_map<({loops}) -> ({m})>" for m in maps)
    iterators = ", ".join('"parallel"' if k == "p" else '"reduction"' for k in kinds)
    arguments = ", ".join(f"%arg{i}: {tensor(s)}" for i, s in enumerate(inputs))
    names = ", ".join(f"%arg{i}" for i in range(len(inputs)))
    types = ", ".join(tensor(s) for s in inputs)
    block = ", ".join([*(f"%{'abcd'[i]}: f32" for i in range(len(inputs))), "%o: f32"])
    out = tensor(output)
    return f"""
module @{name} {{
func.func @main({arguments}) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {out}
  %init = linalg.fill ins(%zero : f32) outs(%empty : {out}) -> {out}
  %result = linalg.generic {{indexing_maps = [{affine}], iterator_types = [{iterators}]}}
      ins({names} : {types}) outs(%init : {out}) {{
  ^bb0({block}):
    {body}
  }} -> {out}
  return %result : {out}
}}
}}"""


MULTIPLY_ADD = "%m = arith.mulf %a, %b : f32\n    %s = arith.addf %o, %m : f32\n    linalg.yield %s : f32"
ADD = "%s = arith.addf %o, %a : f32\n    linalg.yield %s : f32"


def named(
    op: str,
    inputs: Sequence[Sequence[int]],
    output: Sequence[int],
    attributes: str = "",
    epilogue: bool = False,
    element: str = "f32",
    init: str = "0.0",
) -> str:
    """A module with one named linalg op, on a filled output, with or without a fused bias-free ReLU."""
    arguments = ", ".join(f"%arg{i}: {tensor(s, element)}" for i, s in enumerate(inputs))
    names = ", ".join(f"%arg{i}" for i in range(len(inputs)))
    types = ", ".join(tensor(s, element) for s in inputs)
    out = tensor(output, element)
    relu = ""
    result = "%result"
    if epilogue:
        loops = ", ".join(f"d{i}" for i in range(len(output)))
        identity = f"affine_map<({loops}) -> ({loops})>"
        kinds = ", ".join(['"parallel"'] * len(output))
        result = "%relu"
        relu = f"""
  %relu = linalg.generic {{indexing_maps = [{identity}, {identity}], iterator_types = [{kinds}]}}
      ins(%result : {out}) outs(%empty : {out}) {{
  ^bb0(%x: {element}, %y: {element}):
    %m = arith.maximumf %x, %zero : {element}
    linalg.yield %m : {element}
  }} -> {out}"""
    return f"""
func.func @main({arguments}) -> {out} {{
  %zero = arith.constant 0.0 : {element}
  %first = arith.constant {init} : {element}
  %empty = tensor.empty() : {out}
  %init = linalg.fill ins(%first : {element}) outs(%empty : {out}) -> {out}
  %result = linalg.{op} {attributes} ins({names} : {types}) outs(%init : {out}) -> {out}{relu}
  return {result} : {out}
}}"""


def window(rank: int, stride: int = 1, dilation: int = 1) -> str:
    return f"{{dilations = dense<{dilation}> : tensor<{rank}xi64>, strides = dense<{stride}> : tensor<{rank}xi64>}}"


def matmul(m: int, n: int, k: int, element: str = "f32", epilogue: bool = False) -> str:
    return named("matmul", [(m, k), (k, n)], (m, n), element=element, epilogue=epilogue)


def conv2d_nchw(size: int, channels_in: int, channels_out: int, kernel: int, stride: int = 1, **options: bool) -> str:
    """A square NCHW convolution on an already padded input."""
    out = (size - kernel) // stride + 1
    return named(
        "conv_2d_nchw_fchw",
        [(1, channels_in, size, size), (channels_out, channels_in, kernel, kernel)],
        (1, channels_out, out, out),
        window(2, stride),
        **options,
    )


SOFTMAX = """
func.func @main(%x: tensor<12x50x50xf32>) -> tensor<12x50x50xf32> {
  %empty = tensor.empty() : tensor<12x50x50xf32>
  %y = linalg.softmax dimension(2)
      ins(%x : tensor<12x50x50xf32>) outs(%empty : tensor<12x50x50xf32>) -> tensor<12x50x50xf32>
  return %y : tensor<12x50x50xf32>
}"""

LAYER_NORM = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<50x768xf32>) -> tensor<50x768xf32> {
  %zero = arith.constant 0.0 : f32
  %count = arith.constant 768.0 : f32
  %rows = tensor.empty() : tensor<50xf32>
  %full = tensor.empty() : tensor<50x768xf32>
  %init = linalg.fill ins(%zero : f32) outs(%rows : tensor<50xf32>) -> tensor<50xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<50x768xf32>) outs(%init : tensor<50xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<50xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<50x768xf32>, tensor<50xf32>) outs(%full : tensor<50x768xf32>) {
  ^bb0(%a: f32, %s: f32, %o: f32):
    %mean = arith.divf %s, %count : f32
    %d = arith.subf %a, %mean : f32
    linalg.yield %d : f32
  } -> tensor<50x768xf32>
  return %y : tensor<50x768xf32>
}"""

# Every kind of root op the CPU templates claim to cover.
KINDS: dict[str, str] = {
    "matmul": matmul(50, 96, 72, epilogue=True),
    "matmul_column": matmul(1, 1, 4096),
    "matmul_wide": matmul(64, 768, 256),
    "batch_matmul": named("batch_matmul", [(12, 50, 64), (12, 64, 50)], (12, 50, 50)),
    "matvec": named("matvec", [(512, 300), (300,)], (512,)),
    "vecmat": named("vecmat", [(300,), (300, 512)], (512,)),
    "matmul_transposed": generic(
        "transposed", ["d0, d2", "d1, d2", "d0, d1"], "ppr", [(50, 64), (96, 64)], (50, 96), MULTIPLY_ADD
    ),
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
    "reduction": generic("reduction", ["d0, d1", "d0"], "pr", [(100, 197)], (100,), ADD),
    "reduction_outer": generic("outer", ["d0, d1", "d1"], "rp", [(197, 100)], (100,), ADD),
    "reduction_full": generic("full", ["d0, d1", ""], "rr", [(100, 197)], (), ADD),
    "softmax": SOFTMAX,
    "layer_norm": LAYER_NORM,
    "elementwise": generic(
        "elementwise",
        ["d0, d1", "d1", "d0, d1"],
        "pp",
        [(197, 1000), (1000,)],
        (197, 1000),
        "%s = arith.addf %a, %b : f32\n    %e = math.exp %s : f32\n    linalg.yield %e : f32",
    ),
    "transpose": generic("transpose", ["d1, d0", "d0, d1"], "pp", [(100, 197)], (197, 100), "linalg.yield %a : f32"),
    "matmul_f16": matmul(64, 96, 128, element="f16"),
}
