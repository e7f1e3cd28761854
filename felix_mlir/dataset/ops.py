"""Small MLIR modules with one op each: what data is collected on and tests are made of."""

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


def conv2d_nchw(
    size: int, channels_in: int, channels_out: int, kernel: int, stride: int = 1, epilogue: bool = False
) -> str:
    """A square NCHW convolution on an already padded input."""
    out = (size - kernel) // stride + 1
    return named(
        "conv_2d_nchw_fchw",
        [(1, channels_in, size, size), (channels_out, channels_in, kernel, kernel)],
        (1, channels_out, out, out),
        window(2, stride),
        epilogue,
    )


def softmax(*shape: int) -> str:
    """A softmax along the last dimension."""
    x = tensor(shape)
    return f"""
func.func @main(%x: {x}) -> {x} {{
  %empty = tensor.empty() : {x}
  %y = linalg.softmax dimension({len(shape) - 1})
      ins(%x : {x}) outs(%empty : {x}) -> {x}
  return %y : {x}
}}"""


def centred_rows(rows: int, columns: int) -> str:
    """Each row minus its mean: a reduction with a consumer that reads the row again, as in a layer norm."""
    full, column = tensor((rows, columns)), tensor((rows,))
    return f"""
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: {full}) -> {full} {{
  %zero = arith.constant 0.0 : f32
  %count = arith.constant {columns}.0 : f32
  %rows = tensor.empty() : {column}
  %full = tensor.empty() : {full}
  %init = linalg.fill ins(%zero : f32) outs(%rows : {column}) -> {column}
  %sum = linalg.generic {{indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%x : {full}) outs(%init : {column}) {{
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  }} -> {column}
  %y = linalg.generic {{indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %sum : {full}, {column}) outs(%full : {full}) {{
  ^bb0(%a: f32, %s: f32, %o: f32):
    %mean = arith.divf %s, %count : f32
    %d = arith.subf %a, %mean : f32
    linalg.yield %d : f32
  }} -> {full}
  return %y : {full}
}}"""


def biased_exp(rows: int, columns: int) -> str:
    """exp(a + bias), the bias broadcast along rows."""
    body = "%s = arith.addf %a, %b : f32\n    %e = math.exp %s : f32\n    linalg.yield %e : f32"
    inputs = [(rows, columns), (columns,)]
    return generic("biased_exp", ["d0, d1", "d1", "d0, d1"], "pp", inputs, (rows, columns), body)


def transpose(rows: int, columns: int) -> str:
    """The transpose of a tensor of columns × rows."""
    body = "linalg.yield %a : f32"
    return generic("transpose", ["d1, d0", "d0, d1"], "pp", [(columns, rows)], (rows, columns), body)


def matmul_transposed(m: int, n: int, k: int) -> str:
    """A matmul whose second operand lies transposed, as a torch.nn.Linear has its weights."""
    return generic("transposed", ["d0, d2", "d1, d2", "d0, d1"], "ppr", [(m, k), (n, k)], (m, n), MULTIPLY_ADD)


def row_sums(rows: int, columns: int) -> str:
    return generic("row_sums", ["d0, d1", "d0"], "pr", [(rows, columns)], (rows,), ADD)


def column_sums(rows: int, columns: int) -> str:
    return generic("column_sums", ["d0, d1", "d1"], "rp", [(rows, columns)], (columns,), ADD)
