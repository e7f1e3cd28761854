"""The canonical form: blind to names, order and sizes chosen, sharp on everything that decides what code is needed."""

from __future__ import annotations

import random
import re

import pytest
from configured import configured_module
from iree.compiler import ir
from iree.compiler.passmanager import PassManager
from ops import KINDS, conv2d_nchw, matmul

from felix_mlir.passes.canonical import canonical_form, difference
from felix_mlir.schedule import configured_functions

SHUFFLED = ("matmul", "softmax", "layer_norm", "conv2d_nchw", "pool_nchw_sum")


@pytest.fixture(scope="module")
def modules():
    """Modules by kind, compiled when first asked for."""
    made: dict[str, str] = {}

    def module_of(kind: str) -> str:
        if kind not in made:
            made[kind] = str(configured_module(KINDS[kind]))
        return made[kind]

    return module_of


def forms(text: str, change=lambda function: None) -> list[str]:
    with ir.Context():
        module = ir.Module.parse(text)
        functions = list(configured_functions(module.operation).values())
        for function in functions:
            change(function)
        assert module.operation.verify()
        return [canonical_form(function) for function in functions]


@pytest.mark.parametrize("kind", SHUFFLED)
def test_order_of_independent_ops_does_not_matter(modules, kind):
    rng = random.Random(0)

    def shuffle(function):
        block = function.regions[0].blocks[0]
        for _ in range(60):
            ops = list(block.operations)[:-1]
            first, second = (lambda i: (ops[i], ops[i + 1]))(rng.randrange(len(ops) - 1))
            uses_first = any(value.owner == first.operation for value in second.operation.operands)
            writes = any(not op.operation.results for op in (first, second))
            if not uses_first and not writes:
                second.operation.move_before(first.operation)

    assert forms(modules(kind), shuffle) == forms(modules(kind))


@pytest.mark.parametrize("kind", SHUFFLED)
def test_names_places_and_sizes_chosen_do_not_matter(modules, kind):
    text = modules(kind)
    renamed = re.sub(r"@main_dispatch_(\d+)", r"@somewhere_else_\1", text)
    elsewhere = re.sub(
        r"binding\((\d)\) alignment\(64\) offset\(%c0\)", r"binding(\1) alignment(16) offset(%c0)", renamed
    )
    other_sizes = re.sub(r"lowering_config<[^>]*>", "lowering_config<distribution = [1]>", elsewhere)
    assert other_sizes != elsewhere != renamed != text
    assert forms(other_sizes) == forms(text)


def test_offsets_into_buffers_do_not_matter(modules):
    text = modules("matmul")
    moved = re.sub(
        r"offset\(%c0\)(.*) : memref<(\d+)x(\d+)xf32, #hal",
        r"offset(%c0)\1 : memref<\2x\3xf32, strided<[\3, 1], offset: ?>, #hal",
        text,
    )
    moved = re.sub(
        r"(load_from_buffer|store_to_buffer)(.*)memref<(\d+)x(\d+)xf32, #hal",
        r"\1\2memref<\3x\4xf32, strided<[\4, 1], offset: ?>, #hal",
        moved,
    )
    assert moved != text
    assert forms(moved) == forms(text)


@pytest.mark.parametrize("kind", SHUFFLED)
def test_whether_equal_ops_are_merged_does_not_matter(modules, kind):
    with ir.Context():
        module = ir.Module.parse(modules(kind))
        manager = PassManager("builtin.module")
        manager.add("cse")
        manager.run(module.operation)
        assert forms(str(module)) == forms(modules(kind))


def test_values_of_constant_tensors_do_not_matter_but_those_of_scalars_do(modules):
    text = modules("matmul")
    assert forms(text.replace("0.000000e+00 : f32", "1.000000e+00 : f32")) != forms(text)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (matmul(64, 64, 64), matmul(64, 64, 32), "has type"),
        (matmul(64, 64, 64), matmul(64, 64, 64).replace("f32", "f16"), "has type"),
        (conv2d_nchw(30, 16, 32, 3), conv2d_nchw(30, 16, 32, 3, stride=2), "has type"),
        (KINDS["matmul"], KINDS["batch_matmul"], None),
        (KINDS["softmax"], KINDS["layer_norm"], None),
    ],
)
def test_what_differs_is_said(one, other, what):
    (first, *_), (second, *_) = forms(str(configured_module(one))), forms(str(configured_module(other)))
    assert first != second
    found = difference(first, second)
    assert found is None if what is None else what in found
    assert difference(first, first) == ""


def test_another_target_is_another_form(modules):
    text = modules("matmul")
    (one,), (other,) = forms(text), forms(re.sub(r'cpu = "[^"]*"', 'cpu = "generic"', text))
    assert "executable target" in difference(one, other)
