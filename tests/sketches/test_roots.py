"""Which ops of a model are root ops, and which of them are one."""

from __future__ import annotations

import pytest
from convolutions import Shape, pooling
from ops import KINDS
from programs import generic, module, multiply_add, preprocess, tensor, zeros

from felix_mlir.sketches import read_roots, sketches_of

F32 = multiply_add("f32", "f32")
MATMUL = """
  %r = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<5x6xf32>) outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>"""


def roots_of(text, folder):
    source = folder / "model.mlir"
    source.write_text(text)
    return read_roots(preprocess(source, folder / "model.mlirbc"))


def function(arguments, lines, result):
    return f"func.func @main({arguments}) -> {result} {{\n{lines}\n  return %r : {result}\n}}\n"


def row_sums(body, before=""):
    types = [tensor((4, 5), "f32"), tensor((4,), "f32")]
    op = generic(["m, k", "m"], "mk", "k", f"ins(%a : {types[0]}) outs(%c : {types[1]})", body, types[1])
    return function(f"%a: {types[0]}, %c: {types[1]}, %s: f32", f"{before}{op}", types[1])


SUM = "  ^bb0(%p: f32, %o: f32):\n    %m = arith.addf %o, %p : f32\n    linalg.yield %m : f32"
CAPTURES = "  ^bb0(%p: f32, %o: f32):\n    %m = arith.addf %o, %s : f32\n    linalg.yield %m : f32"
COUNTS = """  ^bb0(%p: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %f = arith.sitofp %j : i32 to f32
    %m = arith.addf %o, %f : f32
    linalg.yield %m : f32"""
DYNAMIC = """
func.func @main(%a: tensor<?x5xf32>, %b: tensor<5x6xf32>, %c: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x5xf32>, tensor<5x6xf32>) outs(%c : tensor<?x6xf32>) -> tensor<?x6xf32>
  return %r : tensor<?x6xf32>
}
"""


def test_a_reduction_is_a_root(tmp_path):
    (root,) = roots_of(row_sums(SUM), tmp_path)
    assert (root.extents, root.combines_with, root.multiplies_and_adds) == ((4, 5), "arith.addf", False)
    assert sketches_of(root, 32) == []


@pytest.mark.parametrize("text", [row_sums(CAPTURES), row_sums(COUNTS), DYNAMIC, KINDS["elementwise"]])
def test_ops_nothing_is_derived_for_are_left_out(text, tmp_path):
    assert roots_of(text, tmp_path) == []


def test_equal_ops_are_one_root(tmp_path):
    """Of operands from elsewhere too; what is added to tells ops apart only where it is zeros."""
    arguments = "%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %c: tensor<4x6xf32>"
    other = MATMUL.replace("%r", "%x").replace("%a,", "%x0,")
    added = f"  %x0 = arith.addf %a, %a : tensor<4x5xf32>{other}{MATMUL.replace('%c', '%x')}"
    (root,) = roots_of(function(arguments, added, "tensor<4x6xf32>"), tmp_path)
    assert len(root.locations) == 2
    both = f"{zeros('%z', (4, 6), 'f32')}{MATMUL.replace('%r', '%x').replace('%c', '%z')}{MATMUL.replace('%c', '%x')}"
    first, second = roots_of(function(arguments, both, "tensor<4x6xf32>"), tmp_path)
    assert (first.adds_to_zero, second.adds_to_zero) == (True, False)
    assert len(first.parameters) == 2
    assert second.pattern == root.pattern


def test_ops_that_differ_in_a_stride_are_two_roots(tmp_path):
    """The tensors are the same: elements that the smaller stride leaves unread are at the end."""
    layouts, sizes, kernel = ("nghw", "hw", "nghw"), {"n": 1, "g": 2, "h": 3, "w": 3}, {"h": 2, "w": 2}
    strided = Shape(layouts, sizes, kernel, {"h": 2, "w": 2}, name="pooling_nchw_max")
    dense = Shape(layouts, sizes, kernel, unread=2, name="pooling_nchw_max")
    assert strided.shapes() == dense.shapes()
    first, second = roots_of(module([pooling("", shape, "max") for shape in (strided, dense)]), tmp_path)
    assert first.id != second.id
    assert first.tensors == second.tensors


def test_a_maximum_over_spread_out_elements_needs_its_zeros(tmp_path):
    """Phases leave the zeros out, which a maximum sees."""
    shape = Shape(("nghw", "hw", "nghw"), {"n": 1, "g": 2, "h": 3, "w": 3}, {"h": 2, "w": 2}, name="pooling_nchw_max")
    case = pooling("", shape, "max")
    spread = (f"{zeros('%y', (1, 2, 4, 4), 'f32')}\n  %x = tensor.insert_slice %a into %y[0, 0, 0, 0][1, 2, 2, 2]"
              f"[1, 1, 2, 2] : tensor<1x2x2x2xf32> into tensor<1x2x4x4xf32>\n")  # fmt: skip
    text = function("%a: tensor<1x2x2x2xf32>", spread + case.lines.replace("%a,", "%x,"), tensor(*case.result))
    (root,) = roots_of(text, tmp_path)
    assert root.stuffing is not None
    assert sketches_of(root, 32) == []


def test_filters_that_differ_from_place_to_place_are_none_of_a_convolution(tmp_path):
    types = [tensor((7,), "f32"), tensor((5, 3), "f32"), tensor((5,), "f32")]
    operands = f"ins(%a, %b : {types[0]}, {types[1]}) outs(%c : {types[2]})"
    op = generic(["w + K", "w, K", "w"], "wK", "K", operands, F32, types[2])
    arguments = ", ".join(f"%{name}: {type_}" for name, type_ in zip("abc", types, strict=True))
    (root,) = roots_of(function(arguments, op, types[2]), tmp_path)
    assert sketches_of(root, 32) == []
