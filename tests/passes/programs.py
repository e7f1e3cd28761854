"""Programs whose dispatches differ in little, and ways to put programs together."""

from __future__ import annotations

from ops import KINDS, conv2d_nchw, matmul, softmax

from felix_mlir.dataset.ops import centred_rows, row_sums

MAP2 = "affine_map<(d0, d1) -> (d0, d1)>"
PARALLEL2 = f'{{indexing_maps = [{MAP2}, {MAP2}], iterator_types = ["parallel", "parallel"]}}'


def square(operands: str) -> str:
    """A product of square matrices."""
    out = "tensor<96x96xf32>"
    return f"""
func.func @main(%x: {out}, %y: {out}) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {out}
  %f = linalg.fill ins(%zero : f32) outs(%e : {out}) -> {out}
  %m = linalg.matmul ins({operands} : {out}, {out}) outs(%f : {out}) -> {out}
  return %m : {out}
}}"""


def two_results(second: str) -> str:
    """Two elementwise results, the second made of %x, %s = x + y and the constant %c."""
    out = "tensor<64x100xf32>"
    maps = f'{{indexing_maps = [{MAP2}, {MAP2}, {MAP2}, {MAP2}], iterator_types = ["parallel", "parallel"]}}'
    return f"""
func.func @main(%x: {out}, %y: {out}) -> ({out}, {out}) {{
  %c = arith.constant 3.5 : f32
  %e = tensor.empty() : {out}
  %r:2 = linalg.generic {maps} ins(%x, %y : {out}, {out}) outs(%e, %e : {out}, {out}) {{
  ^bb0(%a: f32, %b: f32, %o: f32, %p: f32):
    %s = arith.addf %a, %b : f32
    %t = {second} : f32
    %u = arith.mulf %t, %c : f32
    linalg.yield %s, %u : f32, f32
  }} -> ({out}, {out})
  return %r#0, %r#1 : {out}, {out}
}}"""


# Dispatches that differ in one thing from one of `KINDS`.
NEAR = {
    "matmul_other_k": matmul(50, 96, 80, epilogue=True),
    "matmul_other_m": matmul(51, 96, 72, epilogue=True),
    "matmul_plain": matmul(50, 96, 72),
    "matmul_f16_relu": matmul(50, 96, 72, element="f16", epilogue=True),
    "matmul_minimum": KINDS["matmul"].replace("maximumf", "minimumf"),
    "matmul_start": KINDS["matmul"].replace("%first = arith.constant 0.0", "%first = arith.constant 2.0"),
    "conv_plain": conv2d_nchw(30, 16, 32, 3),
    "conv_strided": conv2d_nchw(30, 16, 32, 3, 2, epilogue=True),
    "conv_minimum": KINDS["conv2d_nchw"].replace("maximumf", "minimumf"),
    "row_maxima": row_sums(100, 197).replace("arith.addf", "arith.maximumf"),
    "softmax_short": softmax(12, 50, 49),
    "square": square("%x, %x"),
    "product": square("%x, %y"),
    "sum_squared": two_results("arith.mulf %s, %s"),
    "as_it_came": two_results("arith.mulf %s, %s").replace("linalg.yield %s", "linalg.yield %a"),
    "sum_times": two_results("arith.mulf %s, %a"),
    "times": two_results("arith.mulf %a, %b"),
    "times_itself": two_results("arith.mulf %a, %a"),
    "layer_norm_short": centred_rows(50, 512),
}
# What is tuned at a time: of dispatches that are like each other, one.
APART = (
    ("matmul", "conv2d_nchw", "softmax", "square", "sum_squared", "times"),
    ("matmul_plain", "conv_minimum", "reduction", "layer_norm", "product", "sum_times", "as_it_came"),
)


def joined(modules: dict[str, str]) -> str:
    """One module with the function of each of `modules`, called by its key."""
    lines: list[str] = []
    for name, text in modules.items():
        body = text.strip().split("\n")
        if any(line.startswith("module ") for line in body):
            body = [line for line in body if not line.startswith("module ")][:-1]
        lines += [line.replace("@main", f"@{name}") for line in body]
    aliases = dict.fromkeys(line for line in lines if line.startswith("#"))
    return "\n".join((*aliases, "module {", *(line for line in lines if line not in aliases), "}"))


def dense(number: int, rows: int, inner: int, columns: int, body: str) -> str:
    """A layer of a perceptron: `body` makes %y of %a and the bias %b."""
    out = f"tensor<{rows}x{columns}xf32>"
    return f"""
  %e{number} = tensor.empty() : {out}
  %f{number} = linalg.fill ins(%zero : f32) outs(%e{number} : {out}) -> {out}
  %m{number} = linalg.matmul ins(%x{number}, %w{number} : tensor<{rows}x{inner}xf32>, tensor<{inner}x{columns}xf32>)
      outs(%f{number} : {out}) -> {out}
  %x{number + 1} = linalg.generic {{indexing_maps = [{MAP2}, affine_map<(d0, d1) -> (d1)>, {MAP2}],
      iterator_types = ["parallel", "parallel"]}}
      ins(%m{number}, %b{number} : {out}, tensor<{columns}xf32>) outs(%e{number} : {out}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    {body}
    linalg.yield %y : f32
  }} -> {out}"""


MLP = f"""
func.func @main(%x0: tensor<50x96xf32>, %w0: tensor<96x64xf32>, %b0: tensor<64xf32>, %w1: tensor<64x32xf32>,
                %b1: tensor<32xf32>, %w2: tensor<32x10xf32>, %b2: tensor<10xf32>) -> tensor<50x10xf32> {{
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
{dense(0, 50, 96, 64, "%s = arith.addf %a, %b : f32 %t = math.tanh %s : f32 %y = arith.mulf %t, %half : f32")}
{dense(1, 50, 64, 32, "%s = arith.addf %a, %b : f32 %y = arith.maximumf %s, %zero : f32")}
{dense(2, 50, 32, 10, "%y = arith.addf %a, %b : f32")}
  %y = linalg.softmax dimension(1) ins(%x3 : tensor<50x10xf32>) outs(%e2 : tensor<50x10xf32>) -> tensor<50x10xf32>
  return %y : tensor<50x10xf32>
}}"""


CONDITIONAL = f"""
func.func @conditional(%x: tensor<64x100xf32>) -> tensor<64x100xf32> {{
  %c = arith.constant 3.5 : f32
  %e = tensor.empty() : tensor<64x100xf32>
  %r = linalg.generic {PARALLEL2} ins(%x : tensor<64x100xf32>) outs(%e : tensor<64x100xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %p = arith.cmpf ogt, %a, %c : f32
    %v = scf.if %p -> (f32) {{
      %y = math.exp %a : f32
      scf.yield %y : f32
    }} else {{
      scf.yield %c : f32
    }}
    linalg.yield %v : f32
  }} -> tensor<64x100xf32>
  return %r : tensor<64x100xf32>
}}"""
