"""Every sketch of a contraction replaces it and computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from configured import CPU, compile_checked
from contractions import drawn_cases, special_cases
from programs import Case, check_sketches, generic, multiply_add, preprocess, tensor, zeros

from felix_mlir.sketches import SPEC_FLAG, read_roots, rewrite_script, sketches_of
from felix_mlir.sketches.products import Tile, register_tile

# The output's element times an input plus another: the last two ops are those of a product, but not of inputs.
HORNER = """  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %o, %p : f32
    %s = arith.addf %m, %q : f32
    linalg.yield %s : f32"""
SQUARES = """  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %p : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32"""


PRODUCT_WITH_A_WEIGHT = f"""
util.global private @weight = #flow.parameter.named<"weight"> : tensor<64x96xf32>
func.func @main(%a: tensor<32x64xf32>) -> tensor<32x96xf32> {{
  %b = util.global.load immutable @weight : tensor<64x96xf32>
{zeros("%z", (32, 96), "f32")}
  %r = linalg.matmul ins(%a, %b : tensor<32x64xf32>, tensor<64x96xf32>)
                     outs(%z : tensor<32x96xf32>) -> tensor<32x96xf32>
  return %r : tensor<32x96xf32>
}}
"""
VECTOR_BYTES = 32


def sketches(root):
    return sketches_of(root, VECTOR_BYTES)


def test_drawn(tmp_path):
    """Named ops, transposed operands, several loops of a role, narrow types."""
    names = check_sketches(drawn_cases(np.random.default_rng(4)), sketches, tmp_path)
    assert {name for of_case in names for name in of_case} == {"matmul", "packed", "padded"}


def test_special_sizes(tmp_path):
    names = check_sketches(special_cases(), sketches, tmp_path)
    assert names == [
        ["packed", "padded"],
        ["packed", "padded"],
        ["packed", "padded"],
        ["packed", "padded"],
        ["matmul", "packed", "split-reduction"],
        ["matmul", "packed", "padded", "split-reduction"],
        ["split-reduction"],
    ]


@pytest.mark.parametrize(
    ("vector_bytes", "types", "rows", "tile"),
    [
        (32, ("f32", "f32", "f32"), 64, Tile(8, 8, 1)),
        (32, ("f32", "f32", "f32"), 50, Tile(5, 8, 1)),
        (32, ("f32", "f32", "f32"), 11, Tile(6, 8, 1)),
        (32, ("f32", "f32", "f32"), 3, Tile(3, 8, 1)),
        (64, ("f32", "f32", "f32"), 32, Tile(16, 16, 1)),
        (16, ("f16", "f16", "f32"), 8, Tile(8, 4, 1)),
        (64, ("bf16", "bf16", "bf16"), 49, Tile(10, 16, 1)),
        (32, ("i8", "i8", "i32"), 64, Tile(8, 8, 2)),
        (32, ("f64", "f64", "f64"), 56, Tile(8, 4, 1)),
    ],
)
def test_tiles_fill_registers_and_add_few_rows(vector_bytes, types, rows, tile):
    assert register_tile(vector_bytes, types, rows) == tile


def test_a_weight_is_packed_once(tmp_path):
    """The pack of a weight that is loaded with the model is in an initializer, not in the function."""
    source = tmp_path / "model.mlir"
    source.write_text(PRODUCT_WITH_A_WEIGHT)
    (root,) = read_roots(preprocess(source, tmp_path / "model.mlirbc"))
    packed = next(sketch for sketch in sketches(root) if sketch.name == "packed")
    (tmp_path / "spec.mlir").write_text(rewrite_script([(root, packed)]))
    flow = tmp_path / "flow.mlir"
    compile_checked(
        str(source), *CPU.compile_flags, f"{SPEC_FLAG}={tmp_path / 'spec.mlir'}", "--compile-to=flow", "-o", str(flow)
    )
    text = flow.read_text()
    initializer, function = text.index("util.initializer"), text.index("util.func public @main")
    assert "_pack_" in text[initializer:function]
    assert "weight" in text[initializer:function]
    assert "weight" not in text[function:]


@pytest.mark.parametrize(
    ("maps", "loops", "reduced", "shapes", "body"),
    [
        pytest.param(
            ["k, k", "k, n", "n"], "nk", "k", [(4, 4), (4, 5), (5,)], multiply_add("f32", "f32"), id="diagonal"
        ),
        pytest.param(["m, j", "m", "m"], "mj", "j", [(4, 5), (4,), (4,)], multiply_add("f32", "f32"), id="sum of one"),
        pytest.param(["k", "k", "p"], "pk", "k", [(4,), (4,), (5,)], multiply_add("f32", "f32"), id="repeated"),
        pytest.param(["k", "k", ""], "k", "k", [(4,), (4,), ()], HORNER, id="polynomial"),
        pytest.param(["k", "k", ""], "k", "k", [(4,), (4,), ()], SQUARES, id="squares"),
    ],
)
def test_other_sums_are_no_contractions(tmp_path, maps, loops, reduced, shapes, body):
    types = [tensor(shape, "f32") for shape in shapes]
    op = generic(maps, loops, reduced, f"ins(%a, %b : {types[0]}, {types[1]}) outs(%c : {types[2]})", body, types[2])
    source = tmp_path / "model.mlir"
    source.write_text(Case("", tuple((shape, "f32") for shape in shapes), (shapes[2], "f32"), op).function("main"))
    (root,) = read_roots(preprocess(source, tmp_path / "model.mlirbc"))
    assert sketches(root) == []
